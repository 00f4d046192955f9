"""A file that a server polls."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from serving.models.manager import ModelManager

Waits = Callable[[], None]


def replace(file: Path, text: str) -> None:
    """Replace a file in one step, so that no poll reads half of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.rename(file)


def counted_polls(monkeypatch: pytest.MonkeyPatch) -> Waits:
    """A function that returns after six further polls, however long these take."""
    polled: list[Path] = []
    content = ModelManager._content
    monkeypatch.setattr(ModelManager, "_content", lambda self, file: (polled.append(file), content(self, file))[1])

    def wait() -> None:
        first, deadline = len(polled), time.monotonic() + 120
        while len(polled) < first + 7:  # one may be under way
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)

    return wait
