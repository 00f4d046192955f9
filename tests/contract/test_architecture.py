"""The rules of the code base, as tests: who imports whom, what workers need, what files are called and how long."""

import ast
import dataclasses
import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.internal import pickler

from bert_keras.bilm import BiLMConfig
from bert_keras.config import BertConfig, ExportSettings, PretrainingSettings, SecondPhase, TrainingConfig
from bert_keras.electra import ElectraConfig
from bert_keras.masking import MaskingSettings
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, SearchSettings
from bert_keras.tokenizer import SPECIAL_TOKENS, BertTokenizer
from components.corpus_gen.settings import CleaningSettings, CorpusSettings
from components.corpus_gen.transforms import WriteBucket, WriteRuns
from components.evaluator import task_scores
from components.evaluator.metrics import MlmPerplexity
from components.evaluator.settings import SliceSettings, TaskSliceSettings
from components.evaluator.slices import AddLength
from components.example_gate.limits import DataLimits
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.transforms import MakeExamplesShard
from components.serving_validator.limits import ServingLimits
from components.task_example_gen.settings import Columns, TaskDataSettings
from components.vocab_gen.settings import VocabularySettings
from components.vocab_gen.transforms import CountWords, LearnVocabulary
from pipeline.ablations.scales import AblationSettings
from pipeline.airflow_plan import TaskSettings
from pipeline.config import GateSettings
from pipeline.runners.dataflow import DataflowSettings
from serving.batching import BatchingSettings
from serving.deploy.settings import DeploySettings
from serving.limits import LimitSettings
from serving.logs import LogSettings
from serving.request_queue import QueueSettings
from serving.security import SecuritySettings

ROOT = Path(__file__).parents[2]
# A package, and the packages of this project that it may import.
MAY_IMPORT = {
    "bert_keras": {"bert_keras"},
    "components": {"components", "bert_keras"},
    "serving": {"serving"},
    "pipeline": {"pipeline", "components", "bert_keras", "serving"},
}
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
SETTINGS = (
    BertConfig,
    TrainingConfig,
    ExportSettings,
    SecondPhase,
    PretrainingSettings,
    ElectraConfig,
    BiLMConfig,
    MaskingSettings,
    FineTuningConfig,
    SearchSettings,
    RestartSettings,
    CleaningSettings,
    CorpusSettings,
    ExampleSettings,
    VocabularySettings,
    DataLimits,
    ServingLimits,
    GateSettings,
    SliceSettings,
    TaskSliceSettings,
    Columns,
    TaskDataSettings,
    AblationSettings,
    DataflowSettings,
    TaskSettings,
    DeploySettings,
    LimitSettings,
    LogSettings,
    SecuritySettings,
    BatchingSettings,
    QueueSettings,
)
SOURCES = [p for folder in (*MAY_IMPORT, "tests", "scripts", "benchmarks") for p in (ROOT / folder).rglob("*.py")]
PACKAGES = [path for path in SOURCES if path.relative_to(ROOT).parts[0] in MAY_IMPORT]


def name(path):
    return path.relative_to(ROOT).as_posix()


def parse(path):
    return ast.parse(path.read_bytes())


def imports(tree):
    """Modules that are imported anywhere in a file, in functions too."""
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
    WriteRuns(CorpusSettings(), "runs"),
    WriteBucket(True, "out"),
    CountWords(VocabularySettings()),
    LearnVocabulary("out", 100, VocabularySettings(), True),
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
    # TFX loads a `module_path` of ours anew where it has run, which makes other classes of the same names.
    function.__class__ = getattr(sys.modules[type(function).__module__], type(function).__name__)
    for copy in (pickle.loads(pickle.dumps(function)), pickler.loads(pickler.dumps(function))):
        assert type(copy) is type(function) and vars(copy) == vars(function)


def test_files_are_named_for_what_they_hold():
    says_nothing = {"utils", "util", "helpers", "helper", "common", "misc"}
    assert not [name(path) for path in SOURCES if path.stem.strip("_") in says_nothing]


def test_files_are_short():
    lengths = {name(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {path: lines for path, lines in lengths.items() if lines > MAX_LINES}


def test_a_default_lives_in_its_dataclass_alone():
    """No function has a default of its own for what is a setting."""
    # `seed` is every Keras layer's argument too.
    settings = {field.name for of in SETTINGS for field in dataclasses.fields(of)} - {"seed"}
    wrong = []
    for path in PACKAGES:
        for node in ast.walk(parse(path)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                args = node.args.posonlyargs + node.args.args
                defaults = [*zip(args[::-1], node.args.defaults[::-1], strict=False)]
                defaults += zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                # None says nothing: the dataclass does.
                wrong += [
                    f"{name(path)}: {node.name}({arg.arg}=...)"
                    for arg, default in defaults
                    if arg.arg in settings and default is not None and ast.unparse(default) != "None"
                ]
    assert not wrong


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_setting_is_frozen_and_documented(settings):
    assert settings.__dataclass_params__.frozen
    documented = inspect.getdoc(settings)
    missing = [field.name for field in dataclasses.fields(settings) if f"    {field.name}:" not in documented]
    assert not missing
