"""A saved toy model, a shared server for it, and servers as child processes."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, sync_playwright

from serving.client import Client
from serving.server import Server
from tests.support.processes import free_ports
from tests.support.serving.running import Waits, counted_polls, running

ROOT = Path(__file__).parents[3]


class Process:
    """`serving.server.serve` with version 1 in `base`, as a child process on fixed ports."""

    PATH = "/v1/models/bert:predict"
    LENGTH = b'{"inputs": ["abc"], "signature_name": "length"}'

    def __init__(self, base: Path, **settings: Any):
        self._base, self._settings = base, settings
        self.grpc_port, self.rest_port = free_ports(2)
        self.start()

    def start(self) -> None:
        settings = "".join(f", {name}={value!r}" for name, value in self._settings.items())
        ports = f"grpc_port={self.grpc_port}, rest_port={self.rest_port}"
        command = (
            "from serving.middleware.settings import LimitSettings;"
            " from serving.scheduling.admission import QueueSettings;"
            f" from serving.server import serve; serve({str(self._base)!r}, {ports}, poll_seconds=0.1{settings})"
        )
        # With an arena per thread, glibc keeps freed memory: it would grow until all have had a large request.
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "MALLOC_ARENA_MAX": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", command], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        patience = threading.Timer(120.0, self._process.kill)
        patience.start()
        line = self._process.stdout.readline()
        patience.cancel()
        found = re.search(r"^serving bert version 1 .*gRPC 127\.0\.0\.1:(\d+), REST http://127\.0\.0\.1:(\d+)$", line)
        assert found, line
        assert (self.grpc_port, self.rest_port) == (int(found[1]), int(found[2]))

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
        """Send a request over each port with new clients, and check the answers."""
        with Client(f"127.0.0.1:{self.grpc_port}", timeout=120) as client:
            assert client.predict({"text": ["abc"]}, "length")["length"].tolist() == [3]
        assert self.post(self.LENGTH).json() == {"outputs": [3]}

    def rest(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.rest_port}", trust_env=False, verify=False, timeout=60)

    def post(self, body: bytes) -> httpx.Response:
        with self.rest() as http:
            return http.post(self.PATH, content=body)


@pytest.fixture(scope="session")
def in_process() -> Iterator[Callable[..., Process]]:
    """`in_process(base, limits=...)` serves version 1 of the toy in `base` in a child process."""
    started: list[Process] = []

    def start(base: Path, **settings: Any) -> Process:
        started.append(Process(base, **settings))
        started[-1].ask()
        return started[-1]

    yield start
    for process in started:
        process.kill()


@pytest.fixture(scope="session")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`toy(3)` is a saved model that answers 3; each is built once. With `on_examples` it takes tf.Examples, too."""
    from tests.support.serving import toy

    folder = tmp_path_factory.mktemp("toys")

    def build(number: int, on_examples: bool = False) -> Path:
        path = folder / f"{number}{'-on-examples' * on_examples}"
        if not path.exists():
            toy.save(path, number, on_examples)
        return path

    return build


@pytest.fixture(scope="session")
def push(toy: Callable[[int], Path]) -> Callable[[Path, int, int], Path]:
    """`push(base, 7, 3)` pushes the toy that returns 3 as version 7, by a rename like Pusher."""

    def push(base: Path, version: int, number: int) -> Path:
        under_way = base / f"{version}.under-way"
        shutil.copytree(toy(number), under_way)
        return under_way.rename(base / str(version))

    return push


@pytest.fixture(scope="session")
def pushed(tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]) -> Path:
    """A folder with version 1 of the toy; for tests that change nothing."""
    return push(tmp_path_factory.mktemp("served"), 1, 1).parent


@pytest.fixture(scope="session")
def server(pushed: Path) -> Iterator[Server]:
    """Server with version 1 of the toy on free ports; for tests that change nothing."""
    with running(pushed) as server:
        yield server


@pytest.fixture(scope="session")
def http(server: Server) -> Iterator[httpx.Client]:
    """A client of the shared server's REST port."""
    with httpx.Client(base_url=f"http://127.0.0.1:{server.rest_port}", trust_env=False, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    # In CI a missing browser is an error of the setup, not a reason to skip.
    if chromium is None and "CI" not in os.environ:
        pytest.skip("no chromium (apt install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-proxy-server"])
        yield browser
        browser.close()


@pytest.fixture
def wait_for_polls(monkeypatch: pytest.MonkeyPatch) -> Waits:
    return counted_polls(monkeypatch)
