"""Fingerprint of the code of a stage, an execution property: the cache never returns results of older code.

A training has a second one, of the code that makes its weights: a changed export or message runs the stage again, which
goes on from the checkpoint (docs/decisions/0044-a-training-is-named-by-what-makes-its-weights.md).
"""

import ast
import functools
import hashlib
import importlib.metadata
from pathlib import Path

_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
ROOT = Path(__file__).parents[1]
PACKAGES = ("bert_keras", "components", "pipeline", "serving")
# Extension of a data file that a module reads; the file has the module's name.
DATA_SUFFIX = ".npz"
# Libraries whose releases change texts, tokens or examples; other releases change nothing, or only how numbers round.
VERSIONED = ("phonenumbers", "pyarrow", "pycld2", "sentencepiece", "sentencex", "tokenizers", "unicodedata2")

PRETRAINING, FINETUNING = "bert_keras.pretraining", "bert_keras.finetuning.training"
# What makes no weights: exports, readers of other programs' files, records, messages. Examples, rows and initial
# weights are hashed themselves.
_NO_WEIGHTS = (
    *("bert_keras.convert", "bert_keras.errors", "bert_keras.files", "bert_keras.jobs", "bert_keras.notices"),
    *("bert_keras.saved_model", "bert_keras.training.affects", "bert_keras.training.budget"),
    *("bert_keras.training.checkpoint_dir", "bert_keras.training.checkpoints", "bert_keras.training.flops"),
    *("bert_keras.training.log", "bert_keras.training.preemption", "bert_keras.training.backends.child"),
    *("bert_keras.training.backends.opening", "bert_keras.training.backends.devices"),
    *("bert_keras.training.backends.on_tensorflow.devices", "bert_keras.training.backends.on_jax.devices"),
)
# Imported by those alone.
_STEPS = ("bert_keras.training.backends.on_tensorflow.steps", "bert_keras.training.backends.on_jax.steps")
_NO_WEIGHTS_OF = {
    # Examples are tokens already; arrays of rows are of tasks.
    PRETRAINING: (
        *("bert_keras.data.array_batches", "bert_keras.tokenizers.normalize", "bert_keras.tokenizers.sentencepiece"),
        *("bert_keras.tokenizers.tokenizer_files", "bert_keras.tokenizers.unicode_tables"),
        *("bert_keras.tokenizers.vocabulary_files", "bert_keras.tokenizers.wordpiece_offsets"),
    ),
    # Rows are in memory; the trained model answers.
    FINETUNING: (
        *("bert_keras.data.example_parser", "bert_keras.data.tfrecord"),
        *("bert_keras.data.example_format", "bert_keras.data.mixture", "bert_keras.data.tfrecord_batches"),
        *("bert_keras.finetuning.prediction", "bert_keras.tasks.answers", "bert_keras.tasks.span.answers"),
    ),
}


def code_fingerprint(*modules: str, root: Path = ROOT) -> str:
    """Hash of the code of modules, of all project modules that they import, also inside functions, and of `VERSIONED`.

    Reads the sources without importing them. Comments, docstrings and layout are ignored: they do not change results.
    `modules`: dotted names. `root`: folder of `PACKAGES`. ModuleNotFoundError: there is no module of that name.
    """
    files = _closure(modules, root)
    imported = {name.partition(".")[0] for path in files.values() for name in _code(path.read_bytes())[1]}
    return _hash(files, str({name: _release(name) for name in VERSIONED if name in imported}))


def weights_fingerprint(training: str) -> str:
    """Hash of the code that makes the weights of a training, without what errors say and checks of settings."""
    return _hash(weight_modules(training), messages=False)


def weight_modules(training: str) -> dict[str, Path]:
    """The modules that `weights_fingerprint` hashes, by name."""
    files = _closure((training, *_STEPS), without=(*_NO_WEIGHTS, *_NO_WEIGHTS_OF[training]))
    return {name: path for name, path in files.items() if name != "bert_keras"}  # a list of public names


def _hash(files: dict[str, Path], releases: str = "", *, messages: bool = True) -> str:
    digest = hashlib.sha256(releases.encode())
    for name, path in sorted(files.items()):
        digest.update(f"{name}\0{_code(path.read_bytes(), messages)[0]}\0".encode())
        if (data := path.with_suffix(DATA_SUFFIX)).exists():
            digest.update(data.read_bytes())
    return digest.hexdigest()


@functools.cache
def _release(distribution: str) -> str:
    """The installed release; "" without one, which is an error where the library is used."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _closure(modules: tuple[str, ...], root: Path = ROOT, without: tuple[str, ...] = ()) -> dict[str, Path]:
    """The modules and the project modules that they import, by name; `without` some, and what only these import."""
    closure: dict[str, Path] = {}
    waiting = list(modules)
    for name in modules:
        if _source(name, root) is None:
            raise ModuleNotFoundError(f"no module {name} below {root}")
    while waiting:
        name = waiting.pop()
        path = _source(name, root)
        if path is None or name in closure or f"{name}.".startswith(tuple(f"{package}." for package in without)):
            continue
        closure[name] = path
        waiting += [name.rpartition(".")[0], *_code(path.read_bytes())[1]]
    return closure


@functools.cache
def _source(name: str, root: Path) -> Path | None:
    """File of a project module; None for any other name."""
    if name.partition(".")[0] not in PACKAGES:
        return None
    path = root.joinpath(*name.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.exists()), None)


@functools.cache
def _code(source: bytes, messages: bool = True) -> tuple[str, list[str]]:
    """Hash of what a source does (with `messages` also what it raises), and the names that it imports."""
    imported: list[str] = []
    return hashlib.sha256(_text(ast.parse(source), messages, imported).encode()).hexdigest(), imported


def _text(node: ast.AST, messages: bool, imported: list[str]) -> str:
    """A syntax tree as text, the same on every Python: `ast.dump` prints fields that older ones lack, or empty ones.

    Everything in one pass, since every command waits for it. Names that the tree imports are added to `imported`.
    """
    if not node._fields:  # a third of the nodes: `Load`
        return f"{type(node).__name__}()"
    fields = {name: getattr(node, name, None) for name in node._fields}
    if isinstance(node, ast.Import):
        imported += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and node.module:
        imported += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    elif isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False):
        fields["body"] = node.body[1:]
    if not messages:
        if isinstance(node, ast.Raise):
            fields = {}
        elif isinstance(node, ast.FunctionDef) and node.name == "__post_init__":
            fields["body"] = []
        elif isinstance(node, ast.AnnAssign):
            fields["annotation"] = ast.Name("Any")  # has the range of a setting
    texts = []
    for name, value in fields.items():
        if isinstance(value, ast.AST):
            texts.append(f"{name}={_text(value, messages, imported)}")
        elif isinstance(value, list):
            elements = (_text(one, messages, imported) if isinstance(one, ast.AST) else repr(one) for one in value)
            texts += [f"{name}={''.join(f'[{element}]' for element in elements)}"] * bool(value)
        elif value is not None:
            texts.append(f"{name}={value!r}")
    return f"{type(node).__name__}({' '.join(texts)})"
