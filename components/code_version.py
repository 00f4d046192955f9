"""Which code an execution ran: a property of it, so that the cache never serves what older code made."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

SUFFIXES = (".py", ".npz")


def code_fingerprint(*modules: ModuleType) -> str:
    """A hash of the sources of modules, and of everything below those that are packages."""
    digest = hashlib.sha256()
    for module in modules:
        file = Path(str(module.__file__))
        below = file.parent.rglob("*") if hasattr(module, "__path__") else file.parent.glob(f"{file.stem}.*")
        for path in sorted(p for p in below if p.suffix in SUFFIXES):
            digest.update(path.relative_to(file.parent).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()
