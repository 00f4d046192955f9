"""Fingerprint of the code of a stage, an execution property: the cache never returns results of older code."""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("bert_keras", "components", "pipeline", "serving")
# Extension of a data file that a module reads; the file has the module's name.
DATA_SUFFIX = ".npz"


def code_fingerprint(*modules: str, root: Path = ROOT) -> str:
    """Hash of the code of modules, and of all project modules that they import, also inside functions.

    Reads the sources without importing them. Comments, docstrings and layout are ignored: they do not change results.

    Args:
        modules: dotted names.
        root: folder of `PACKAGES`.

    Raises:
        ModuleNotFoundError: there is no module of that name.
    """
    digest = hashlib.sha256()
    for name, path in sorted(_closure(modules, root).items()):
        digest.update(f"{name}\0{_code(path.read_bytes())[0]}\0".encode())
        if (data := path.with_suffix(DATA_SUFFIX)).exists():
            digest.update(data.read_bytes())
    return digest.hexdigest()


def _closure(modules: tuple[str, ...], root: Path = ROOT) -> dict[str, Path]:
    """The modules and the project modules that they import, by name; a package's own code precedes its modules."""
    found: dict[str, Path] = {}
    waiting = list(modules)
    for name in modules:
        if _source(name, root) is None:
            raise ModuleNotFoundError(f"no module {name} below {root}")
    while waiting:
        name = waiting.pop()
        path = _source(name, root)
        if path is None or name in found:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *_code(path.read_bytes())[1]]
    return found


def _source(name: str, root: Path) -> Path | None:
    """File of a project module; None for any other name."""
    if name.partition(".")[0] not in PACKAGES:
        return None
    path = root.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@functools.cache
def _code(source: bytes) -> tuple[str, list[str]]:
    """Hash of what a source does, and the names that it imports: `from a import b` may name a module b."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node, clean=False
        ):
            del node.body[0]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest(), list(_imports(tree))


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{alias.name}" for alias in node.names))
