"""Processes that must end with the process that started them; Linux only.

python -m components.processes PARENT WORDS...      run `bert-tfx WORDS...` until the process PARENT ends
"""

import ctypes
import importlib.metadata
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# util-linux: prefix for any command, with the same effect.
UNTIL_PARENT_ENDS = ("setpriv", "--pdeathsig", "KILL", "--")


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended already
        os.kill(os.getpid(), signal.SIGKILL)


def bound_command(*words: str) -> list[str]:
    """Command line of a process that runs `bert-tfx WORDS...` until this process ends."""
    return [sys.executable, "-m", __name__, str(os.getpid()), *words]


def main() -> None:
    """Run the command that the package installs."""
    end_with_parent(int(sys.argv[1]))
    command, *_ = importlib.metadata.entry_points(group="console_scripts", name="bert-tfx")
    sys.argv = ["bert-tfx", *sys.argv[2:]]
    command.load()()


if __name__ == "__main__":
    main()
