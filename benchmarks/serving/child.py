"""A program of the benchmarks in a process of its own, which answers each line of JSON with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# Waiting OpenMP threads (torch's) must not spin, which doubles their CPU seconds on a shared machine.
_PATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
ENVIRONMENT = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_WAIT_POLICY": "PASSIVE", "PYTHONPATH": _PATH}


class Child:
    """A running program; `module` is its name below `benchmarks`."""

    def __init__(self, module: str, *arguments: str):
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  until `stop`
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{module}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,  # Linux shares the cores out by session
        )

    def read(self) -> Any:
        """Read its next answer; RuntimeError with the end of its output if it exited."""
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            words = self._errors.read().strip().splitlines()[-5:]
            code = self._process.wait()
            raise RuntimeError(f"ended with {code}; -9 is that of a machine without memory: " + "\n".join(words))
        return json.loads(line)

    def ask(self, *command: Any) -> Any:
        """Send a command; return the answer."""
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return self.read()

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()
