"""The demo's corpus: English docstrings of the installed libraries, read with `ast`, without importing them."""

import ast
import hashlib
import multiprocessing
import os
import sysconfig
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from bert_keras.files import atomic_write_anywhere

# Locked libraries with much written documentation (without generated clients, which are repetitive).
LIBRARIES = (
    "numpy", "scipy", "pandas", "sklearn", "tensorflow", "keras", "apache_beam", "tfx", "matplotlib",
    "tensorflow_model_analysis", "tensorflow_data_validation", "pyarrow", "tensorflow_text", "tensorboard", "jax",
    "rich", "IPython", "jinja2", "absl", "starlette", "pydantic", "hypothesis", "h5py", "attr", "setuptools", "pip",
)  # fmt: skip
FILES_AT_A_TIME = 400
CORPUS_BYTES = 12_000_000
MIN_CHARACTERS = 200
# Minimum share of letters in a line: English text is above it; tables, signatures and drawings are below.
MIN_LETTERS = 0.6
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def write_docstring_corpus(path: str, size: int) -> None:
    """Write about `size` bytes of docstrings to `path`, as documents separated by blank lines.

    The order of the files is a fixed pseudo-random one, so the same libraries give the same text. An existing file is
    kept.
    """
    if os.path.exists(path):
        return
    site_packages = Path(sysconfig.get_paths()["purelib"])
    files = [p for library in LIBRARIES for p in (site_packages / library).rglob("*.py")]
    files.sort(key=lambda p: hashlib.sha256(p.relative_to(site_packages).as_posix().encode()).digest())
    documents: dict[bytes, str] = {}
    missing = size
    # Not forked: TensorFlow's threads, if the caller has any, do not survive a fork, and the child may crash.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for start in range(0, len(files), FILES_AT_A_TIME):
            for texts in pool.map(docstrings, files[start : start + FILES_AT_A_TIME], chunksize=20):
                new = {digest: text for digest, text in texts.items() if digest not in documents}
                documents.update(new)
                missing -= sum(map(len, new.values()))
            if missing <= 0:
                break
    atomic_write_anywhere(path, "".join(documents[digest] + "\n\n" for digest in sorted(documents)))


def docstrings(path: Path) -> dict[bytes, str]:
    """The prose of each docstring of a Python file, by its SHA-256; a file that cannot be parsed has none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's code
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return {}
    written = (ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, _DOCUMENTED))
    texts = ("\n".join(_prose_lines(docstring)) for docstring in written)
    return {hashlib.sha256(text.encode()).digest(): text for text in texts if len(text) >= MIN_CHARACTERS}


def _prose_lines(docstring: str) -> Iterator[str]:
    """The lines that are no code, rule or table."""
    in_fence = in_session = False
    for line in docstring.splitlines():
        line = line.strip()
        if line.startswith("```"):
            in_fence = not in_fence
        elif line.startswith((">>>", "...")):
            in_session = True
        elif not line:
            in_session = False
        elif not (in_fence or in_session) and sum(c.isalpha() or c == " " for c in line) >= MIN_LETTERS * len(line):
            yield line.encode("utf-8", "ignore").decode()
