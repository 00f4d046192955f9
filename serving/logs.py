"""What the server writes down of requests: a JSON object a line, and no text of anyone's unless it was asked to.

    {"time": "2026-11-21T19:12:44.113Z", "entrypoint": "GRPC", "method": "Predict", "model": "bert", "version": 3,
     "signature": "fill_mask", "rows": 2, "milliseconds": 3.2, "code": "OK"}

(on one line.) `model`, `signature`, `version` and `rows` are empty or null where a request was refused before they were
known. Messages of errors are not logged: some quote what was sent. A failure of the server itself is logged as the type
of the exception and the lines of code it came through.
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

from serving.calls import Record
from serving.errors import SettingsError

log = logging.getLogger(__name__)

_FRAMES = 6


@dataclass(frozen=True)
class LogSettings:
    """What is written down of requests.

    Attributes:
        access_log: the file that gets a line a request, or "-" for standard error; None writes none. A file that is
            moved away (logrotate) is begun anew.
        log_requests: the lines hold the inputs of requests, too: the texts of whoever called.
    """

    access_log: str | None = None
    log_requests: bool = False


class AccessLog:
    """Writes a line a call; an observer of `serving.calls`.

    Raises:
        SettingsError: the file cannot be written.
    """

    def __init__(self, settings: LogSettings):
        self._log_requests = settings.log_requests
        # A logger of its own, below no other: nothing that configures logging can change or repeat the lines.
        self._logger = logging.Logger("access", logging.INFO)
        if settings.access_log is None:
            if settings.log_requests:
                raise SettingsError("requests are logged in the access log: give its file, or `-` for standard error")
            self._logger.disabled = True
            return
        try:
            file = settings.access_log
            self._logger.addHandler(logging.StreamHandler(sys.stderr) if file == "-" else WatchedFileHandler(file))
        except OSError as error:
            raise SettingsError(f"access log {file}: {error.strerror or error}") from None

    def __call__(self, call: Record) -> None:
        if self._logger.disabled:
            return
        now = datetime.datetime.now(datetime.timezone.utc)
        line: dict[str, Any] = {
            "time": now.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "entrypoint": call.entrypoint,
            "method": call.method,
            "model": call.model,
            "version": call.version,
            "signature": call.signature,
            "rows": call.rows,
            "milliseconds": round(1000 * call.seconds, 3),
            "code": call.code.name,
        }
        if self._log_requests:
            line["inputs"] = {name: _plain(array) for name, array in call.inputs.items()}
        try:
            self._logger.info("%s", json.dumps(line, ensure_ascii=False))
        except OSError as error:  # its folder is gone, say: no reason to fail a request
            log.error("access log: %s", error.strerror)

    def close(self) -> None:
        for handler in self._logger.handlers:
            handler.close()


def failure(error: BaseException) -> str:
    """An exception without its message: "ValueError in rest_service.py:61 _predict < servable.py:68 predict"."""
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__} in {where}"


def _plain(array: np.ndarray) -> Any:
    if array.dtype != object:
        return array.tolist()
    texts = np.empty(array.shape, object)
    texts.ravel()[:] = [text.decode(errors="backslashreplace") for text in array.ravel()]
    return texts.tolist()
