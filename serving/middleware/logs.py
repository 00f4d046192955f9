"""Access log: one JSON object per line; texts of requests only if configured.

    {"time": "2026-11-21T19:12:44.113Z", "entrypoint": "GRPC", "method": "Predict", "model": "bert", "version": 3,
     "signature": "fill_mask", "rows": 2, "milliseconds": 3.2, "code": "OK"}

(on one line.) `signature`, `version` and `rows` are empty or null if a request was refused before they were known,
`model` if the model is not served. Error messages are not logged, because some quote the request. An internal error is
logged as the type of the exception and the lines of code that it passed through.
"""

import datetime
import json
import logging
import sys
import traceback
from dataclasses import dataclass
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import SettingsError
from serving.middleware.request_log import RequestRecord

log = logging.getLogger(__name__)

_FRAMES = 6


@dataclass(frozen=True)
class LogSettings:
    """Settings of the access log.

    Attributes:
        access_log: file for one line per request, or "-" for standard error; None disables the log. After the file
            has been moved (logrotate), a new one is created.
        log_requests: log the inputs of requests, too; they are texts of users.
    """

    access_log: str | None = None
    log_requests: bool = False


class AccessLog:
    """Writes one line per request; an observer of `serving.middleware.request_log`.

    Raises:
        SettingsError: the file cannot be written.
    """

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
        now = datetime.datetime.now(datetime.timezone.utc)
        line: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "entrypoint": record.entrypoint,
            "method": record.method,
            "model": record.model,
            "version": record.version,
            "signature": record.signature,
            "rows": record.rows,
            "milliseconds": round(1000 * record.seconds, 3),
            "code": record.code.name,
        }
        if self._log_requests:
            line["inputs"] = {name: _plain(array) for name, array in record.inputs.items()}
        try:
            self._logger.info("%s", json.dumps(line, ensure_ascii=False))
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


def _plain(array: np.ndarray) -> Any:
    if array.dtype != object:
        return array.tolist()
    texts = np.empty(array.shape, object)
    texts.ravel()[:] = [text.decode(errors="backslashreplace") for text in array.ravel()]
    return texts.tolist()
