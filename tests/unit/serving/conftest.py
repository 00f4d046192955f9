"""A toy model with the shapes of the real one's signatures, one server over it that the tests share, and others that
are processes of their own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import tensorflow as tf

from serving.client import Client
from serving.server import Server

ROOT = Path(__file__).parents[3]

TEXTS = tf.TensorSpec([None], tf.string, name="text")
PAIRS = tf.TensorSpec([None], tf.string, name="text_pair")
NO_PAIR = tf.constant([""])


class Toy(tf.Module):
    """Answers with its own number, so that a test can tell which version answered."""

    def __init__(self, number: int):
        super().__init__()
        self.number = tf.Variable(number, dtype=tf.int64)

    @tf.function(input_signature=[TEXTS])
    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """As many masks as there are `[MASK]`; the tokens are `<mask><rank>`, the scores 0.2 and 0.1."""
        masks = tf.strings.split(text, "[MASK]").row_lengths() - 1
        bad = tf.where(masks < 1)
        message = tf.strings.join(["no [MASK] in text ", tf.strings.as_string(tf.reduce_min(bad))])
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(tf.size(bad), 0), [message])]):
            rows = tf.ragged.range(masks)
        names = tf.strings.as_string(rows.to_tensor(-1))[:, :, tf.newaxis]
        is_mask = tf.sequence_mask(masks)[:, :, tf.newaxis]
        tokens = tf.where(is_mask, names + tf.constant(["a", "b"]), "")
        return {"tokens": tokens, "scores": tf.where(is_mask, tf.constant([0.2, 0.1]), 0.0)}

    @tf.function(input_signature=[TEXTS])
    def length(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"length": tf.strings.length(text)}

    @tf.function(input_signature=[TEXTS, PAIRS])
    def encode(self, text: tf.Tensor, text_pair: tf.Tensor = NO_PAIR) -> dict[str, tf.Tensor]:
        lengths = tf.cast(tf.strings.length(text) + tf.strings.length(text_pair), tf.float32)
        return {"pooled_output": tf.tile(lengths[:, tf.newaxis], [1, 3]), "tokens": text}

    @tf.function(input_signature=[TEXTS, PAIRS])
    def next_sentence(self, text: tf.Tensor, text_pair: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"is_next": tf.cast(tf.strings.length(text) < tf.strings.length(text_pair), tf.float32)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="real"),
            tf.TensorSpec([None], tf.int32, name="whole"),
        ]
    )
    def numbers(self, real: tf.Tensor, whole: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"real": real / 10.0, "whole": whole + 1, "all": tf.reduce_sum(real)}

    @tf.function(input_signature=[TEXTS])
    def echo(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text": text, "as_bytes": text}

    @tf.function(input_signature=[TEXTS])
    def sequence(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """A vector a word, as `encode` of the real model gives one a piece: as wide as the batch's longest text."""
        words = tf.strings.split(text)
        lengths = tf.cast(tf.strings.length(words.to_tensor("[PAD]")), tf.float32)
        return {
            "tokens": words.to_tensor("[PAD]"),
            "sequence_output": lengths[:, :, tf.newaxis] / tf.constant([3.0, 7.0]),
            "pooled_output": tf.cast(tf.strings.length(text), tf.float32)[:, tf.newaxis] / tf.constant([3.0, 7.0]),
        }

    @tf.function(input_signature=[TEXTS])
    def company(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Who answered, and with whom each row was computed: how many rows, and the longest text's length."""
        rows = tf.shape(text)
        longest = tf.reduce_max(tf.strings.length(text))
        return {
            "number": tf.fill(rows, self.number),
            "rows": tf.fill(rows, rows[0]),
            "longest": tf.fill(rows, longest),
        }

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="turns")])
    def spin(self, turns: tf.Tensor) -> dict[str, tf.Tensor]:
        """Takes a while (some microseconds a turn), and says who answered."""
        total = tf.constant(0)
        for turn in tf.range(turns):
            total += turn % 2
        return {"number": self.number + tf.cast(total * 0, tf.int64)}


class Process:
    """`serving.server.serve` over version 1 in `base`, in a process of its own, on ports that it keeps."""

    PATH = "/v1/models/bert:predict"
    LENGTH = b'{"inputs": ["abc"], "signature_name": "length"}'

    def __init__(self, base: Path, **settings: Any):
        self._base, self._settings, self.grpc_port, self.rest_port = base, settings, 0, 0
        self.start()

    def start(self) -> None:
        settings = "".join(f", {name}={value!r}" for name, value in self._settings.items())
        ports = f"grpc_port={self.grpc_port}, rest_port={self.rest_port}"
        command = (
            "from serving.limits import LimitSettings; from serving.request_queue import QueueSettings;"
            f" from serving.server import serve; serve({str(self._base)!r}, {ports}, poll_seconds=0.1{settings})"
        )
        # With an arena a thread, glibc keeps what each has freed: memory would grow until all have had a large request.
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "MALLOC_ARENA_MAX": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        found = re.search(r"^serving bert version 1 .*gRPC 127\.0\.0\.1:(\d+), REST http://127\.0\.0\.1:(\d+)$", line)
        assert found, line
        self.grpc_port, self.rest_port = int(found[1]), int(found[2])

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _count(self, what: str) -> int:
        return len(os.listdir(f"/proc/{self._process.pid}/{what}"))

    @property
    def threads(self) -> int:
        return self._count("task")

    @property
    def descriptors(self) -> int:
        return self._count("fd")

    def forget_peak(self) -> None:
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def memory_mb(self, what: str = "VmRSS") -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(re.search(rf"{what}:\s+(\d+) kB", status)[1]) / 1024  # type: ignore[index]

    def ask(self) -> None:
        """One request over each port, by new clients; the right answers."""
        with Client(f"127.0.0.1:{self.grpc_port}", timeout=30) as client:
            assert client.predict({"text": ["abc"]}, "length")["length"].tolist() == [3]
        assert self.post(self.LENGTH).json() == {"outputs": [3]}

    def rest(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.rest_port}", trust_env=False, verify=False, timeout=60)

    def post(self, body: bytes) -> httpx.Response:
        with self.rest() as http:
            return http.post(self.PATH, content=body)


@pytest.fixture(scope="session")
def in_process() -> Iterator[Callable[..., Process]]:
    """`in_process(base, limits=...)` serves version 1 of the toy in `base` in a process of its own."""
    started: list[Process] = []

    def start(base: Path, **settings: Any) -> Process:
        started.append(Process(base, **settings))
        started[-1].ask()
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """`toy(3)` is a saved model that answers 3; each is built once."""
    folder = tmp_path_factory.mktemp("toys")

    def build(number: int) -> Path:
        path = folder / str(number)
        if not path.exists():
            model = Toy(number)
            names = ("fill_mask", "length", "encode", "next_sentence", "numbers", "echo", "sequence", "company", "spin")
            signatures = {name: getattr(model, name) for name in names}
            signatures |= {"serving_default": model.fill_mask, "encode_pair": model.encode}
            tf.saved_model.save(model, str(path), signatures)
        return path

    return build


@pytest.fixture(scope="session")
def push(toy: Callable[[int], Path]) -> Callable[[Path, int, int], Path]:
    """`push(base, 7, 3)` pushes the toy that answers 3 as version 7, by a rename as Pusher does."""

    def push(base: Path, version: int, number: int) -> Path:
        under_way = base / f"{version}.under-way"
        shutil.copytree(toy(number), under_way)
        return under_way.rename(base / str(version))

    return push


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]) -> Iterator[Server]:
    """Version 1 of the toy on free ports; for tests that change nothing."""
    base = tmp_path_factory.mktemp("served")
    push(base, 1, 1)
    with Server(base, grpc_port=0, rest_port=0) as server:
        assert server.wait_until_available(60)
        yield server
