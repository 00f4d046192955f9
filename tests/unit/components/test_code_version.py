"""Changes of code change the fingerprint; changes of docstrings and comments do not."""

import ast
import importlib.metadata
import sys

import pytest

from components import code_version
from components.code_version import (
    FINETUNING,
    PRETRAINING,
    ROOT,
    VERSIONED,
    _closure,
    _code,
    code_fingerprint,
    weights_fingerprint,
)

FILES = {
    "components/__init__.py": "",
    "components/stage/__init__.py": '"""A stage."""',
    "components/stage/component.py": "from components.stage import executor\nfrom bert_keras.loss import nll\n",
    "components/stage/executor.py": "import numpy\n\ndef do():\n    import bert_keras.tables.words\n",
    "components/other.py": "x = 1\n",
    "bert_keras/__init__.py": "",
    "bert_keras/loss.py": '"""A loss."""\n\n\ndef nll(x):\n    """The loss."""\n    return -x\n',
    "bert_keras/tables/__init__.py": "",
    "bert_keras/tables/words.py": "x = 2\n",
    "bert_keras/tables/words.npz": "one",
    "bert_keras/unused.py": "x = 3\n",
}


@pytest.fixture
def project(tmp_path):
    for name, source in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(source)
    return tmp_path


def fingerprint(project):
    return code_fingerprint("components.stage.component", root=project)


@pytest.mark.parametrize(
    ("name", "old", "new", "counts"),
    [
        ("bert_keras/loss.py", "-x", "x", True),
        ("bert_keras/loss.py", "def nll(x)", "def nll(x, y=1)", True),
        ("bert_keras/tables/words.py", "2", "3", True),  # imported in a function
        ("bert_keras/tables/words.npz", "one", "two", True),
        ("bert_keras/tables/__init__.py", "", "x = 1", True),  # runs when anything below it is imported
        ("components/stage/executor.py", "do", "done", True),
        ("components/stage/__init__.py", "A stage", "One stage", False),
        ("bert_keras/loss.py", "A loss.", "Another\nloss.", False),
        ("bert_keras/loss.py", '    """The loss."""\n', "", False),
        ("bert_keras/loss.py", "return -x", "return  - x  # negated", False),
        ("bert_keras/unused.py", "3", "4", False),
        ("components/other.py", "1", "4", False),
    ],
)
def test_imported_code_changes_the_fingerprint_but_docstrings_do_not(project, name, old, new, counts):
    before = fingerprint(project)
    source = FILES[name]
    assert old in source
    (project / name).write_text(source.replace(old, new, 1))
    assert (fingerprint(project) != before) is counts


def test_a_missing_module_is_an_error(project):
    with pytest.raises(ModuleNotFoundError, match=r"components\.stage\.main"):
        code_fingerprint("components.stage.main", root=project)


STEPS = "bert_keras.training.backends.on_tensorflow.steps"


@pytest.mark.parametrize(
    ("stage", "reads", "does_not"),
    [
        (
            "components.trainer.pretrain",
            {"bert_keras.pretraining", STEPS, "bert_keras.models.layers"},
            {"bert_keras.finetuning.finetune", "bert_keras.finetuning.search"},
        ),
        (
            "components.trainer.finetune",
            {STEPS, "bert_keras.convert.weight_map", "bert_keras.finetuning.search"},
            {"bert_keras.pretraining"},
        ),
        ("components.corpus_gen.component", {"components.io.shards", "bert_keras.tokenizers.normalize"}, {STEPS}),
        ("components.pretrain_example_gen.component", {"bert_keras.data.masking"}, {STEPS}),
        (
            "pipeline.commands.server.serve",
            {"serving.models.servable", "bert_keras.convert.onnx.answers"},
            {"components", "bert_keras.training.loop"},
        ),
    ],
)
def test_what_stages_of_this_project_depend_on(stage, reads, does_not):
    found = set(_closure((stage,)))
    assert reads <= found
    assert not does_not & found


ANEW, KEPT = {PRETRAINING, FINETUNING}, set()


@pytest.fixture(scope="module")
def fingerprints():
    """Of the code as it is."""
    return {training: weights_fingerprint(training) for training in ANEW}


@pytest.mark.parametrize(
    ("file", "old", "new", "trains_anew"),
    [
        ("bert_keras/objectives/mlm_nsp.py", "", "x = 1", ANEW),
        ("bert_keras/objectives/electra.py", "", "x = 1", {PRETRAINING}),
        ("bert_keras/objectives/labels.py", "", "x = 1", {FINETUNING}),
        ("bert_keras/models/layers.py", "", "x = 1", ANEW),
        ("bert_keras/training/backends/on_tensorflow/steps.py", "tf.clip_by_global_norm", "tf.clip_by_norm", ANEW),
        ("bert_keras/training/backends/on_jax/steps.py", "jax.lax.psum(gradients", "jax.lax.pmean(gradients", ANEW),
        ("bert_keras/training/optimizer.py", "", "x = 1", ANEW),
        ("bert_keras/training/schedules.py", "", "x = 1", ANEW),
        ("bert_keras/training/phases.py", "self.examples_read(first_step)", "self.examples_read(0)", ANEW),
        ("bert_keras/data/tfrecord_batches.py", "READ_AHEAD_FILES = 8", "READ_AHEAD_FILES = 9", {PRETRAINING}),
        ("bert_keras/data/masking.py", "rng", "generator", {PRETRAINING}),
        ("bert_keras/data/array_batches.py", "", "x = 1", {FINETUNING}),
        ("bert_keras/models/head_start.py", "", "x = 1", {PRETRAINING}),
        ("bert_keras/pretraining.py", "load_weights", "load_other_weights", {PRETRAINING}),
        ("bert_keras/finetuning/init_checkpoint.py", "variable.assign", "variable.assign_add", {FINETUNING}),
        ("bert_keras/tokenizers/normalize.py", "", "x = 1", {FINETUNING}),
        ("bert_keras/convert/onnx/folder.py", '"""', '"""More. ', KEPT),
        ("bert_keras/convert/weight_map.py", "", "x = 1", KEPT),
        ("bert_keras/saved_model/pretrained.py", "", "x = 1", KEPT),
        ("bert_keras/training/checkpoints.py", "", "x = 1", KEPT),
        ("bert_keras/training/log.py", "", "x = 1", KEPT),
        ("bert_keras/training/backends/on_jax/devices.py", "", "x = 1", KEPT),
        ("bert_keras/training/budget.py", "", "x = 1", KEPT),
        ("bert_keras/training/config.py", '"in (0, 1)"', '"a share"', KEPT),
        ("bert_keras/training/optimizer.py", "is in encoder layer", "belongs to layer", KEPT),
        (
            "bert_keras/training/config.py",
            "def __post_init__(self) -> None:",
            "def __post_init__(self) -> None:\n        self.x = 1",
            KEPT,
        ),
        ("bert_keras/tasks/metrics/scores.py", "", "x = 1", KEPT),
        ("bert_keras/errors.py", "", "x = 1", KEPT),
        ("bert_keras/__init__.py", '"pretrain"', '"train"', KEPT),
        ("components/trainer/pretrain.py", "", "x = 1", KEPT),
    ],
)
def test_which_code_trains_anew(monkeypatch, fingerprints, file, old, new, trains_anew):
    """A change of the code that makes weights; the other stages' code has the fingerprint of the stage."""
    source = (ROOT / file).read_bytes()
    edited = source.replace(old.encode(), new.encode(), 1) if old else source + new.encode()
    assert edited != source
    monkeypatch.setattr(code_version, "_code", lambda read, *more: _code(edited if read == source else read, *more))
    changed = {training for training, before in fingerprints.items() if weights_fingerprint(training) != before}
    assert changed == trains_anew


STAGES = [
    *(f"components.{stage}.component" for stage in ("corpus_gen", "vocab_gen", "pretrain_example_gen", "trainer")),
    *(f"components.{stage}.component" for stage in ("task_example_gen", "example_gate", "serving_validator")),
    *("components.trainer.pretrain", "components.trainer.finetune"),
    *(f"components.{stage}.transforms" for stage in ("corpus_gen", "vocab_gen", "pretrain_example_gen")),
]
# Arrays, protocols, engines, formats and locks: a release rounds otherwise at most.
HARMLESS = {
    *("apache_beam", "etils", "filelock", "google", "google_crc32c", "grpc", "h5py", "jax", "keras", "keras_hub"),
    *(
        "ml_dtypes",
        "nncf",
        "numpy",
        "onnx",
        "onnxruntime",
        "openvino",
        "psutil",
        "pydantic",
        "rich",
        "safetensors",
        "scipy",
    ),
    *("seqeval", "sklearn", "tensorboard", "tensorflow", "tensorflow_metadata", "tensorflow_serving"),
    *("tensorflow_text", "tfx", "typing_extensions", "yaml"),
}


def imported(*modules):
    """The libraries that modules import."""
    names = {name.partition(".")[0] for path in _closure(modules).values() for name in _code(path.read_bytes())[1]}
    return names - {*sys.stdlib_module_names, *code_version.PACKAGES}


def test_every_library_of_a_stage_is_versioned_or_known_to_be_harmless():
    assert imported(*STAGES) - HARMLESS == set(VERSIONED)


@pytest.mark.parametrize(
    ("stage", "libraries"),
    [
        ("components.corpus_gen.component", {"phonenumbers", "pyarrow", "pycld2", "sentencex", "unicodedata2"}),
        ("components.pretrain_example_gen.component", {"sentencepiece", "tokenizers"}),
    ],
)
def test_another_release_of_a_text_library_is_another_fingerprint(monkeypatch, stage, libraries):
    release, before = importlib.metadata.version, code_fingerprint(stage)

    def changes(*released):
        """Return whether releases of these libraries change the fingerprint."""
        code_version._release.cache_clear()
        monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.0.1" if name in released else release(name))
        return code_fingerprint(stage) != before

    assert {name for name in VERSIONED if changes(name)} == libraries
    assert not changes(*HARMLESS)
    code_version._release.cache_clear()


def test_a_fingerprint_is_the_same_on_every_python():
    """`ast.dump` prints `type_params=[]` on Python 3.12 alone, and `args=[]` before 3.13."""
    text = code_version._text(ast.parse("def f(x, y=None):\n    return [x, '', 0]"), True, [])
    arguments = "arguments(args=[arg(arg='x')][arg(arg='y')] defaults=[Constant()])"
    values = "[Name(id='x' ctx=Load())][Constant(value='')][Constant(value=0)]"
    body = f"[Return(value=List(elts={values} ctx=Load()))]"
    assert text == f"Module(body=[FunctionDef(name='f' args={arguments} body={body})])"
