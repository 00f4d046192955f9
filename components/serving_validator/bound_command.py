"""`bert-tfx WORDS...` in a process that never outlives the one that started it: it ends with its standard input."""

from __future__ import annotations

import importlib.metadata
import os
import sys
import threading


def _end_with_the_starter() -> None:
    # The other end of the pipe goes with its process, however that ends: kill -9 too. Not by `sys.stdin`, whose lock
    # a thread that waits there would keep for ever.
    while os.read(0, 1):
        pass
    os._exit(1)


def main() -> None:
    """Runs the command that the package installs."""
    threading.Thread(target=_end_with_the_starter, daemon=True).start()
    command, *_ = importlib.metadata.entry_points(group="console_scripts", name="bert-tfx")
    sys.argv[0] = "bert-tfx"
    command.load()()


if __name__ == "__main__":
    main()
