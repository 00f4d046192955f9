"""Programs of the tests in processes of their own."""

import contextlib
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
# XLA_FLAGS of a process whose programs run a few times, on a CPU: half the time to compile.
FAST_TO_COMPILE = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with the repository on the path and `changes`."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **changes}


def run_python(*words: object, **variables: str) -> None:
    """Run `python WORDS` with environment variables; AssertionError with the last of its errors if it fails."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment(**variables), capture_output=True, text=True)
    assert not done.returncode, done.stderr[-3000:]


def has_ended(process: psutil.Process) -> bool:
    """Whether it has ended; where nobody reaps it, it stays a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return True


def free_ports(count: int) -> list[int]:
    """Below the ports that Linux gives to whoever asks for any: nobody gets them before their server has started."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(20_000, 32_000), 1000):
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
        if len(ports) == count:
            break
    return ports
