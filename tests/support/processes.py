"""Programs of the tests in processes of their own."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment, with the repository on the path and `changes`."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **changes}


def run_python(*words: object) -> None:
    """Run `python WORDS`; AssertionError with the last of its errors if it fails."""
    done = subprocess.run([sys.executable, *map(str, words)], env=environment(), capture_output=True, text=True)
    assert not done.returncode, done.stderr[-3000:]
