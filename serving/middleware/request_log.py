"""One record for each request, over gRPC and REST, for metrics and the access log: one JSON object per line.

    {"time": "2026-11-21T19:12:44.113Z", "entrypoint": "GRPC", "method": "Predict", "model": "bert", "version": 3,
     "signature": "fill_mask", "rows": 2, "milliseconds": 3.2, "code": "OK"}

(on one line.) The record is created before the request is read; `annotate` adds the resolved model; when the answer is
sent, the record goes to the observers. It holds only names that the server knows, never names that a client made up.
Texts are logged only if configured, error messages never, because some quote the request: an internal error is logged
as the type of the exception and the lines of code that it passed through.
"""

import contextlib
import contextvars
import datetime
import json
import logging
import sys
import time
import traceback
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving.errors import SettingsError
from serving.middleware.settings import LogSettings
from serving.models.servable import DEFAULT_SIGNATURE, Servable

log = logging.getLogger(__name__)

_FRAMES = 6


@dataclass
class RequestRecord:
    """Attributes of a request, as far as known: if it was refused early, some keep their defaults."""

    method: str  # of TensorFlow Serving's services (Predict, ...), or Embeddings; "" for other REST paths
    entrypoint: str  # GRPC or REST
    model: str = ""  # of those that are served
    version: int | None = None
    signature: str = ""
    rows: int | None = None  # of the largest input
    inputs: Mapping[str, np.ndarray] = field(default_factory=dict)  # shown only by a log configured to do so
    seconds: float = 0.0  # until the answer; for gRPC, without the time in the queue of its thread pool
    code: grpc.StatusCode = grpc.StatusCode.UNKNOWN


Observer = Callable[[RequestRecord], None]
# Names of all served models.
Names = Callable[[], Container[str]]
_current: contextvars.ContextVar[RequestRecord | None] = contextvars.ContextVar("record", default=None)


def annotate(servable: Servable, signature_name: str, inputs: Mapping[str, np.ndarray] | None = None) -> None:
    """Add servable, signature and inputs to the record of the current request, if there is one.

    `signature_name` "" means the default signature.
    """
    record = _current.get()
    if record is None:  # a warm-up
        return
    record.model, record.version = servable.name, servable.version
    name = signature_name or DEFAULT_SIGNATURE
    record.signature = name if name in servable.signature_defs else ""
    if inputs is not None:
        record.inputs = inputs
        record.rows = max((array.shape[0] for array in inputs.values() if array.ndim), default=0)


@contextlib.contextmanager
def recorded(record: RequestRecord, observers: Sequence[Observer]) -> Iterator[None]:
    """Make `record` that of the current request, and give it to the observers at the end."""
    began = time.perf_counter()
    token = _current.set(record)
    try:
        yield
    finally:
        _current.reset(token)
        record.seconds = record.seconds or time.perf_counter() - began
        for observer in observers:
            observer(record)


class AccessLog:
    """Writes one line per request; SettingsError: the file cannot be written."""

    def __init__(self, settings: LogSettings):
        self._log_requests = settings.log_requests
        # A logger outside of the hierarchy: no logging configuration can change or repeat its lines.
        self._logger = logging.Logger("access", logging.INFO)
        if settings.access_log is None:
            if settings.log_requests:
                raise SettingsError("log_requests needs an access log: give its file, or `-` for standard error")
            self._logger.disabled = True
            return
        try:
            file = settings.access_log
            self._logger.addHandler(logging.StreamHandler(sys.stderr) if file == "-" else WatchedFileHandler(file))
        except OSError as error:
            raise SettingsError(f"access log {file}: {error.strerror or error}") from None

    def __call__(self, record: RequestRecord) -> None:
        if self._logger.disabled:
            return
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        names = ("entrypoint", "method", "model", "version", "signature", "rows")
        line: dict[str, Any] = {"time": now.replace("+00:00", "Z"), **{name: getattr(record, name) for name in names}}
        line |= {"milliseconds": round(1000 * record.seconds, 3), "code": record.code.name}
        if self._log_requests:
            line["inputs"] = {name: array.tolist() for name, array in record.inputs.items()}
        text = json.dumps(line, ensure_ascii=False, default=lambda item: item.decode(errors="backslashreplace"))
        try:
            self._logger.info("%s", text)
        except OSError as error:  # e.g. its folder was deleted: no reason to fail a request
            log.error("access log: %s", error.strerror)

    def close(self) -> None:
        for handler in self._logger.handlers:
            handler.close()


def failure(error: BaseException) -> str:
    """Exception without its message: "ValueError in rest_service.py:61 _predict < servable.py:68 predict"."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__} in {where}"
