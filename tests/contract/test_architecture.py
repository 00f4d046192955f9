"""Rules of the code base as tests: imports, requirements of workers, names and lengths of files."""

import ast
import dataclasses
import graphlib
import importlib
import inspect
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.internal import pickler

from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.corpus_gen import settings as corpus_settings
from components.corpus_gen.filters.passage_counts import HashPassages
from components.corpus_gen.record.tally import SourceNames
from components.corpus_gen.transforms import WriteBucket, WriteRuns
from components.evaluator import task_scores
from components.evaluator.metrics import MlmPerplexity
from components.evaluator.slices import AddLength
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import MakeExamplesShard
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import CountWords

ROOT = Path(__file__).parents[2]
# A package, and the packages of this project that it may import.
MAY_IMPORT = {
    "bert_keras": {"bert_keras"},
    "components": {"components", "bert_keras"},
    "serving": {"serving"},
    "pipeline": {"pipeline", "components", "bert_keras", "serving"},
}
# The rooms of each package, from the bottom up: a file imports from its own room and from those below it.
LAYERS = {
    "bert_keras": (
        *(
            "errors",
            "notices",
            "files",
            "tokenizers",
            "data",
            "models",
            "objectives",
            "training",
            "tasks",
            "saved_model",
            "convert",
        ),
        *("jobs", "finetuning", "pretraining"),
    ),
    "components": (
        *("artifacts", "processes", "code_version", "stage", "io", "corpus_gen", "vocab_gen", "pretrain_example_gen"),
        *(
            "example_gate",
            "task_example_gen",
            "trainer",
            "evaluator",
            "baseline_resolver",
            "serving_validator",
            "pusher",
        ),
    ),
    "pipeline": (
        *("stages", "recipes", "examples", "engines", "apply", "runs", "dags", "summaries", "report", "runners"),
        *("commands", "cli"),
    ),
    "serving": (
        *("errors", "protos", "tensors", "scheduling", "models", "page", "middleware", "api", "deploy", "client"),
        "server",
    ),
}
# Files and folders in a folder of a package, without `__init__.py` and README.md.
MAX_ENTRIES = 15
# What a Beam worker need not have: no wheels for its Python or its glibc.
NOT_ON_WORKERS = (
    "tensorflow",
    "keras",
    "tfx",
    "ml_metadata",
    "tensorflow_data_validation",
    "tensorflow_model_analysis",
)
MAX_LINES = 350
# Names of the dataclasses that are settings, and of some that are made of them.
SETTINGS_NAME = re.compile(r"[A-Z]\w*(Settings|Config|Limits|Columns|Phase|TaskPolicy)|Columns")
MADE_OF_SETTINGS = {"ModelConfig"}
SOURCES = [p for folder in (*MAY_IMPORT, "tests", "scripts", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
PACKAGES = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in MAY_IMPORT]


def name(path):
    return path.relative_to(ROOT).as_posix()


def parse(path):
    return ast.parse(path.read_bytes())


def imports(tree):
    """Modules imported anywhere in a file, including functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_the_sources_are_found():
    assert {path.relative_to(ROOT).parts[0] for path in PACKAGES} == set(MAY_IMPORT)
    assert list(imports(ast.parse("def f():\n  from a.b import c\n  import d.e"))) == ["a.b", "a.b.c", "d.e"]


def module_of(path):
    return name(path).removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def settings_of(path):
    """The settings that a file declares."""
    for node in parse(path).body:
        if (
            isinstance(node, ast.ClassDef)
            and SETTINGS_NAME.fullmatch(node.name)
            and node.name not in MADE_OF_SETTINGS
            and any("dataclass" in ast.unparse(decorator) for decorator in node.decorator_list)
        ):
            yield getattr(importlib.import_module(module_of(path)), node.name)


SETTINGS = [made for path in [*PACKAGES, ROOT / "benchmarks/ablations/recipes.py"] for made in settings_of(path)]


def imported_modules(path, modules):
    """This project's modules imported anywhere in a file, including those for type checking only."""
    found = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names & modules
            found |= {node.module} & modules if names - modules else set()
    return found - {module_of(path)}


GRAPH = {module_of(path): imported_modules(path, {module_of(p) for p in PACKAGES}) for path in PACKAGES}


def test_imports_have_no_cycles():
    graphlib.TopologicalSorter(GRAPH).prepare()
    with pytest.raises(graphlib.CycleError):
        graphlib.TopologicalSorter({"a": {"b"}, "b": {"a"}}).prepare()


@pytest.mark.parametrize("package", LAYERS)
def test_nothing_is_imported_from_above(package):
    rank = {room: number for number, room in enumerate(LAYERS[package])}
    rooms = {
        path.stem for path in (ROOT / package).iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    assert rooms - {"__init__"} <= set(rank), "a new room needs its place in LAYERS"
    inside = {module for module in GRAPH if module.startswith(f"{package}.")}
    assert not [
        f"{importer} imports {imported}"
        for importer in inside
        for imported in GRAPH[importer] & inside
        if rank[importer.split(".")[1]] < rank[imported.split(".")[1]]
    ]


def test_no_folder_is_crowded():
    folders = {path.parent for path in PACKAGES}
    entries = {
        name(folder): [p for p in folder.iterdir() if not p.name.startswith(("__", "README"))] for folder in folders
    }
    assert not {folder: len(found) for folder, found in entries.items() if len(found) > MAX_ENTRIES}


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_imports_go_one_way(package):
    forbidden = set(MAY_IMPORT) - MAY_IMPORT[package]
    for path in (ROOT / package).rglob("*.py"):
        wrong = {module for module in imports(parse(path)) if module.partition(".")[0] in forbidden}
        assert not wrong, f"{name(path)} imports {sorted(wrong)}"


def test_the_model_library_knows_neither_tfx_nor_beam():
    for path in (ROOT / "bert_keras").rglob("*.py"):
        theirs = {*NOT_ON_WORKERS, "apache_beam"} - {"tensorflow", "keras"}
        wrong = {module for module in imports(parse(path)) if module.split(".")[0] in theirs}
        assert not wrong, f"{name(path)} imports {sorted(wrong)}"


def test_tfx_s_arguments_are_jobs_everywhere_but_in_the_trainer():
    for path in PACKAGES:
        names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(parse(path))}
        names |= {module.rpartition(".")[2] for module in imports(parse(path))}
        assert not names & {"FnArgs", "SimpleNamespace"} or path.parent == ROOT / "components/trainer", name(path)


def test_keras_is_imported_as_keras():
    """`tf.keras` is another Keras wherever tf_keras is installed."""
    for path in PACKAGES:
        tree = parse(path)
        used = [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and ast.unparse(n) == "tf.keras"]
        wrong = {module for module in imports(tree) if module.startswith(("tensorflow.keras", "tf_keras"))}
        assert not used and not wrong, f"{name(path)}: {used or sorted(wrong)}"


def test_transforms_load_on_workers():
    paths = sorted(ROOT.glob("components/*/transforms.py"))
    modules = [name(path).removesuffix(".py").replace("/", ".") for path in paths]
    assert len(modules) >= 3
    code = f"""
import importlib, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_ON_WORKERS}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing())
try:
    import tfx
    sys.exit("tfx is there")
except ModuleNotFoundError:
    pass
for module in {modules}:
    importlib.import_module(module)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-2000:]


# Every DoFn and CombineFn of the components; a new one needs a row.
(PERPLEXITY,) = MlmPerplexity().computations(model_names=["candidate"])
(TASK_SCORE,) = getattr(task_scores, task_scores.class_name("mrpc"))().computations(model_names=["candidate"])
FUNCTIONS = [
    HashPassages(corpus_settings.CorpusSettings(), "hashes"),
    WriteRuns(corpus_settings.CorpusSettings(), SourceNames(), "out"),
    WriteBucket(corpus_settings.CorpusSettings(), SourceNames(), "out"),
    CountWords(VocabularySettings()),
    MakeExamplesShard(BertTokenizer(SPECIAL_TOKENS, True), ExampleSettings(), "train", "out"),
    PERPLEXITY.combiner,
    TASK_SCORE.combiner,
    AddLength(["up to 32", "over 32"], "model"),
]


def test_the_table_has_every_function():
    found = set()
    for path in PACKAGES:
        for node in ast.walk(parse(path)):
            bases = {ast.unparse(base) for base in node.bases} if isinstance(node, ast.ClassDef) else set()
            if bases & {"beam.DoFn", "beam.CombineFn"}:
                found.add(node.name)
    assert found == {type(function).__name__ for function in FUNCTIONS}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: type(function).__name__)
def test_a_function_is_plain_data(function):
    assert isinstance(function, (beam.DoFn, beam.CombineFn))
    # TFX imports a `module_path` of ours again, which makes other classes of the same names.
    function.__class__ = getattr(sys.modules[type(function).__module__], type(function).__name__)
    for copy in (pickle.loads(pickle.dumps(function)), pickler.loads(pickler.dumps(function))):
        assert type(copy) is type(function) and vars(copy) == vars(function)


def test_files_are_named_for_what_they_hold():
    says_nothing = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [name(path) for path in SOURCES if path.stem.strip("_") in says_nothing]


def test_files_are_short():
    lengths = {name(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {path: lines for path, lines in lengths.items() if lines > MAX_LINES}


def test_defaults_are_declared_only_in_their_dataclass():
    """No function repeats the default of a setting."""
    # `seed` is also an argument of every Keras layer, and `model` the name of a served one.
    classes = [made for made in SETTINGS if made.__name__ != "TaskSettings"]  # models and features take its fields
    settings = {field.name for made in classes for field in dataclasses.fields(made)} - {"seed", "model"}
    wrong = []
    for path in PACKAGES:
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                args = node.args.posonlyargs + node.args.args
                defaults = [*zip(args[::-1], node.args.defaults[::-1], strict=False)]
                defaults += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                # None is not a default: the dataclass has it.
                wrong += [
                    f"{name(path)}: {node.name}({arg.arg}=...)"
                    for arg, default in defaults
                    if arg.arg in settings and default is not None and ast.unparse(default) != "None"
                ]
    assert not wrong


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_setting_is_frozen_and_documented(settings):
    assert settings.__dataclass_params__.frozen
    """In the docstring, or, of a field that is an option of a command, in the option's help."""
    documented = "\n".join(inspect.getdoc(parent) or "" for parent in settings.__mro__)
    hints = typing.get_type_hints(settings, include_extras=True)
    helped = {name for name, hint in hints.items() for extra in typing.get_args(hint)[1:] if getattr(extra, "help", "")}
    names = {field.name for field in dataclasses.fields(settings)}
    assert not {name for name in names - helped if f"    {name}:" not in documented}
