"""Golden files: the expected text of a page or a screen, in `golden/` beside its test."""

import os
from pathlib import Path


def check_golden(text: str, test_file: str, name: str) -> None:
    """Compare a text with `golden/NAME.txt`.

    After a change that is meant, `UPDATE_GOLDEN=1 .venv/bin/pytest FILE` writes the files: read their diff.
    """
    path = Path(test_file).with_name("golden") / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text.splitlines() == path.read_text(encoding="utf-8").splitlines(), f"{path.name} differs"
