"""Remarks that a user must see whatever a run redirects: text that is never read, rows left out, a damaged checkpoint."""

from __future__ import annotations

import sys


def notify(message: str) -> None:
    """Print one line to the terminal's standard error."""
    print(f"bert-tfx: {message}", file=sys.stderr, flush=True)
