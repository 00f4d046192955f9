"""Serves a model in a child process, `bert-tfx serve`, called over gRPC with TensorFlow Serving's own stubs."""

import contextlib
import itertools
import os
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from typing import Self

import grpc
import psutil
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)
from tfx.utils import io_utils

from bert_keras.errors import StageError
from components.processes import bound_command

_MODEL, _VERSION, _HOST = "bert", "1", "127.0.0.1"
# Below those that Linux gives to whoever asks for any: nobody gets one in the seconds until the server listens.
_PORTS = range(20_000, 32_000)
_CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.enable_http_proxy", 0),
    # The first attempts are made before the server listens.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_POLL_SECONDS = 0.1
# Time from the end of a connection to that of the process.
_SECONDS_TO_DIE = 5.0


class NotServable(Exception):
    """Problem of a model that cannot be served, in one line."""


class ServedModel:
    """Serves a SavedModel on free ports of the loopback interface, on the CPU, as a context manager.

    The child process ends when the context is left, or when this process ends in any way. NotServable: the server
    crashed, or did not load the model in time. StageError: it cannot be started, whatever the model.
    """

    def __init__(self, directory: str, max_load_seconds: float):
        self._directory, self._max_load_seconds = directory, max_load_seconds
        self.load_seconds = 0.0

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="serving-validator-")
        version = os.path.join(self._folder.name, _VERSION)
        if os.path.isdir(self._directory):
            os.symlink(os.path.abspath(self._directory), version)
        else:
            io_utils.copy_dir(self._directory, version)
        grpc_port, rest_port = itertools.islice(_free_ports(), 2)
        ports = ["--grpc-port", str(grpc_port), "--rest-port", str(rest_port)]
        self._process = subprocess.Popen(
            bound_command("serve", "--model-dir", self._folder.name, *ports),
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must reach only this process
            stdout=subprocess.DEVNULL,  # standard error is inherited: it goes into the run's log
            # A training process may occupy all memory of the GPUs.
            env={**os.environ, "CUDA_VISIBLE_DEVICES": "-1"},
        )
        self._channel = grpc.insecure_channel(f"{_HOST}:{grpc_port}", options=_CHANNEL_OPTIONS)
        self._prediction = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        try:
            self._wait_until_available()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def predict(self, request: predict_pb2.PredictRequest, seconds: float) -> predict_pb2.PredictResponse:
        """Send a request for any signature; NotServable, with the reason, if there is no answer within `seconds`."""
        named = predict_pb2.PredictRequest()
        named.CopyFrom(request)
        named.model_spec.name = _MODEL
        try:
            return self._prediction.Predict(named, timeout=seconds)
        except grpc.RpcError as error:
            reason = f"{error.code().name}: {error.details()}"
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    reason = f"the server crashed ({_exit(self._process.wait(_SECONDS_TO_DIE))})"
            raise NotServable(f"no answer from {request.model_spec.signature_name}: {reason}") from error

    def memory_mb(self) -> float:
        """Peak memory of the process in MiB; where the system does not report it, its current memory."""
        try:
            with open(f"/proc/{self._process.pid}/status", encoding="utf-8") as file:
                (peak,) = (line.split()[1] for line in file if line.startswith("VmHWM:"))
                return int(peak) / 1024
        except (OSError, ValueError):
            return psutil.Process(self._process.pid).memory_info().rss / 2**20

    def _wait_until_available(self) -> None:
        models = model_service_pb2_grpc.ModelServiceStub(self._channel)
        request = get_model_status_pb2.GetModelStatusRequest()
        request.model_spec.name = _MODEL
        started, reached = time.monotonic(), False
        while (waited := time.monotonic() - started) < self._max_load_seconds:
            if (died := self._process.poll()) is not None:
                if reached:
                    raise NotServable(f"the server crashed while loading the model ({_exit(died)})")
                raise StageError(f"bert-tfx serve ended before it could load the model ({_exit(died)}), see the log")
            try:
                (status,) = models.GetModelStatus(request, timeout=self._max_load_seconds).model_version_status
            except grpc.RpcError as error:
                # Not there yet, or the server has not polled for versions yet.
                reached |= error.code() is grpc.StatusCode.NOT_FOUND
            else:
                reached = True
                if status.state == get_model_status_pb2.ModelVersionStatus.AVAILABLE:
                    self.load_seconds = waited
                    return
                if status.state == get_model_status_pb2.ModelVersionStatus.END:
                    raise NotServable(f"the server cannot load it: {status.status.error_message}")
            time.sleep(_POLL_SECONDS)
        raise NotServable(f"not loaded after {self._max_load_seconds:g} seconds (serving.max_load_seconds)")


def _exit(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _free_ports() -> Iterator[int]:
    """Ports that are free now, in random order."""
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        try:
            socket.create_server((_HOST, port)).close()
        except OSError:
            continue
        yield port
