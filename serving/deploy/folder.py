"""Writes a folder atomically, and replaces it only if it contains nothing else."""

import hashlib
import json
import tempfile
from collections.abc import Mapping
from pathlib import Path

from serving.deploy.settings import CannotDeploy

# Hashes of the written files: a folder with exactly these files, unchanged, may be replaced.
MANIFEST = "manifest.json"
_WRITER = "bert-tfx deploy tf-serving"


def write_folder(output: Path, files: Mapping[str, str]) -> None:
    """Write `files` (text by relative name) and their manifest as the folder `output`, or nothing: CannotDeploy.

    A folder written earlier by this function is replaced, unless it has foreign or modified files.
    """
    refuse_foreign(output)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}.", dir=output.parent) as beside:
            new, old = Path(beside, "new"), Path(beside, "old")
            for name, text in {**files, MANIFEST: _manifest(files)}.items():
                path = new / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8", newline="\n")
            if output.exists():
                output.rename(old)
            try:
                new.rename(output)
            except OSError:
                if old.exists():
                    old.rename(output)
                raise
    except OSError as error:
        raise CannotDeploy(f"{output}: cannot be written ({error.strerror}); give another --output") from error


def refuse_foreign(output: Path) -> None:
    """Raise CannotDeploy if `output` contains anything that `write_folder` did not write."""
    if not output.exists():
        return
    if not output.is_dir() or output.is_symlink():
        raise CannotDeploy(f"{output} is not a folder; give another --output")
    there = {path.relative_to(output).as_posix(): path for path in output.rglob("*") if not path.is_dir()}
    if not there:
        return
    written = _written(output / MANIFEST)
    if not written:
        raise CannotDeploy(f"{output} is not empty, and was not written by {_WRITER}; give another --output")
    for name, path in sorted(there.items()):
        if name != MANIFEST and written.get(name) != _hash(path.read_bytes()):
            raise CannotDeploy(f"{output / name} was changed or added by hand; move it away, or give another --output")


def _written(manifest: Path) -> dict[str, str]:
    """Hashes by name; {} without a manifest of this program."""
    try:
        found = json.loads(manifest.read_text(encoding="utf-8"))
        return dict(found["files"]) if found["written_by"] == _WRITER else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _manifest(files: Mapping[str, str]) -> str:
    hashes = {name: _hash(text.encode()) for name, text in sorted(files.items())}
    return json.dumps({"written_by": _WRITER, "files": hashes}, indent=2) + "\n"


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
