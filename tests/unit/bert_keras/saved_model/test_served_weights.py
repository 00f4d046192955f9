"""Served graphs compute nothing from weights alone, in the precision of the export, and give the same numbers."""

import dataclasses
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_keras.convert.formats import read_folder
from bert_keras.data.example_format import ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.ensemble import Ensemble
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.models.task_models import BertForTokenClassification
from bert_keras.saved_model.pretrained import export_saved_model
from bert_keras.saved_model.saved_model_files import served_copy
from bert_keras.saved_model.settings import WEIGHTS_FILE, ExportSettings
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.settings import with_settings
from tests.support.models import every_model

PRECISIONS = ("float32", "mixed_bfloat16")
# All in bfloat16, where another order rounds otherwise; in float32 one of each kind of attention, and an LSTM.
COPIES = [(name, "mixed_bfloat16") for name in every_model.CASES]
COPIES += [(name, "float32") for name in ("bert, packed", "modern", "mpnet, packed", "deberta", "features")]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "a", "cat", "sat", "."], True)
# The query's scale, 8 ** -0.5, is not a power of two.
CONFIG = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 48, max_position_embeddings=16)
TASK = dataclasses.replace(task_of("ner"), labels=("B-person", "I-person", "O"))
# Ops without cost in a call: the optimiser turns the transpose of the tied embeddings into an attribute of the product,
# and the first rows of the position table (in `evaluate`, whose examples have one length) are a view.
FREE = ("Transpose", "StridedSlice")


def drawn(model):
    """`model` with random weights, which bfloat16 rounds."""
    model.build()
    rng = np.random.default_rng(0)
    model.set_weights([weight + rng.normal(0, 0.2, weight.shape) for weight in model.get_weights()])
    return model


def tagger():
    """A model with loops (the LSTM's)."""
    return drawn(BertForTokenClassification(CONFIG, len(TASK.labels), has_bilstm=True))


def export(name, directory, precision):
    """Exports the model called `name`; returns the model whose weights the export writes for fine-tuning."""
    settings = ExportSettings(precision)
    if name == "pretrained":
        model = drawn(BertForPreTraining(CONFIG))
        export_saved_model(model, TOKENIZER, str(directory), ExampleLayout.bert(16, 3), export=settings)
        return model
    models = [tagger() for _ in range(2 if name == "ensemble" else 1)]
    model = Ensemble(models) if name == "ensemble" else models[0]
    export_task_model(model, TASK, TaskSettings(max_seq_length=16), TOKENIZER, str(directory), settings)
    return models[0]


@pytest.fixture(
    scope="module",
    params=[
        ("pretrained", "mixed_bfloat16"),
        ("task", "float32"),
        ("ensemble", "mixed_bfloat16"),
        pytest.param(("pretrained", "float32"), marks=pytest.mark.slow),
        pytest.param(("task", "mixed_bfloat16"), marks=pytest.mark.slow),
    ],
    ids=lambda param: ", ".join(param),
)
def exported(request, tmp_path_factory):
    """(name, precision, folder, trained model)."""
    name, precision = request.param
    directory = tmp_path_factory.mktemp(name)
    return name, precision, directory, export(name, directory, precision)


@pytest.mark.parametrize(("name", "precision"), COPIES)
def test_served_copies_give_the_numbers_of_the_model(name, precision):
    case = every_model.CASES[name]
    model = every_model.random_model(case)
    keras.mixed_precision.set_dtype_policy(precision)
    try:
        plain = type(model).from_config(model.get_config())
        plain.build()
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    plain.set_weights(model.get_weights())
    served = served_copy(model, precision)
    with mock.patch("bert_keras.models.electra.sample", every_model.best_guess):
        wanted, found = (every_model.named(one(case.features(), training=False)) for one in (plain, served))
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype
        np.testing.assert_array_equal(tf.cast(found[key], tf.float32), tf.cast(value, tf.float32), err_msg=key)


def test_what_an_ensemble_is_without_is_said(exported):
    name, _, directory, model = exported
    folder = read_folder(str(directory))
    said = [remark for remark in folder.remarks if remark.endswith("serves the mean of 2 models; the first is read")]
    assert len(said) == (name == "ensemble")
    if name == "ensemble":
        np.testing.assert_array_equal(folder.model.get_weights()[0], model.get_weights()[0])


def graph_of(directory):
    (graph,) = SavedModel.FromString((directory / "saved_model.pb").read_bytes()).meta_graphs
    return graph


def products(directory):
    """The dtypes of the matrix products in a SavedModel."""
    nodes = [node for function in graph_of(directory).graph_def.library.function for node in function.node_def]
    return {tf.as_dtype(node.attr["T"].type) for node in nodes if node.op in ("MatMul", "BatchMatMulV2")}


def test_the_graph_computes_in_the_precision_and_answers_in_float32(exported):
    _, precision, directory, _ = exported
    assert (tf.bfloat16 in products(directory)) == (precision == "mixed_bfloat16")
    signatures = graph_of(directory).signature_def.values()
    types = {output.dtype for signature in signatures for output in signature.outputs.values()}
    assert tf.float32.as_datatype_enum in types and tf.bfloat16.as_datatype_enum not in types


def test_served_graphs_compute_nothing_from_weights_alone(exported):
    _, _, directory, _ = exported
    reads = 0
    for function in graph_of(directory).graph_def.library.function:
        made, read = made_of_weights(function.node_def)
        assert not [node.name for node in made if node.op not in FREE]
        reads += read
    assert reads > 20  # the graphs read weights at all


def made_of_weights(nodes):
    """Nodes of a function that depend on weights and constants only, and the number of weights the function reads."""
    by_name, kinds = {node.name: node for node in nodes}, {}

    def kind(name):
        """Kind "weight", "constant", "made" (computed from these), or None: depends on the function's arguments."""
        if name not in kinds:
            kinds[name] = None  # while it is unknown
            kinds[name] = task_type_of(by_name[name]) if name in by_name else None
        return kinds[name]

    def task_type_of(node):
        if node.op in ("ReadVariableOp", "Const"):
            return "weight" if node.op == "ReadVariableOp" else "constant"
        inputs = {kind(name.split(":")[0]) for name in node.input if not name.startswith("^")}
        calls = any(value.HasField("func") for value in node.attr.values())
        if not inputs or None in inputs or calls:
            return None
        if inputs == {"constant"}:
            return "constant"
        return "weight" if node.op == "Identity" and inputs == {"weight"} else "made"

    found = {node.name: kind(node.name) for node in nodes}
    return [node for node in nodes if found[node.name] == "made"], list(found.values()).count("weight")


def test_weights_are_stored_once_in_the_type_of_the_computation(exported):
    name, precision, directory, model = exported
    reader = tf.train.load_checkpoint(str(directory / "variables" / "variables"))
    types, shapes = reader.get_variable_to_dtype_map(), reader.get_variable_to_shape_map()
    stored = [(types[key], shapes[key]) for key in types if types[key].is_floating]
    assert sum(np.prod(shape, dtype=int) for _, shape in stored) == model.count_params() * (1 + (name == "ensemble"))
    # Layer normalisation computes in float32.
    norms = sum(weight.path.endswith(("gamma", "beta")) for weight in model.weights) * (1 + (name == "ensemble"))
    low = [shape for of_one, shape in stored if of_one == tf.bfloat16]
    assert len(low) == (len(stored) - norms if precision == "mixed_bfloat16" else 0)


def test_the_weights_file_has_the_trained_weights(exported, tmp_path):
    _, _, directory, model = exported
    model.save_weights(tmp_path / WEIGHTS_FILE)
    wanted, found = (arrays(folder / WEIGHTS_FILE) for folder in (tmp_path, directory))
    assert found.keys() == wanted.keys() and len(found) > 20
    for key, value in wanted.items():
        assert found[key].dtype == value.dtype
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def arrays(path: Path):
    h5py = pytest.importorskip("h5py")
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.__setitem__(name, item[()]) if isinstance(item, h5py.Dataset) else None
        )
    return found


def near_but_not_equal(low, full):
    """Compare up to bfloat16's rounding, which keeps three digits."""
    assert low.dtype == full.dtype == tf.float32
    np.testing.assert_allclose(low, full, rtol=0.1, atol=0.05)
    assert np.abs(low - full).max() > 1e-6


@pytest.mark.slow
def test_answers_in_bfloat16_are_near(tmp_path):
    """Whatever policy the training left behind, which stays."""
    model = BertForPreTraining(CONFIG, seed=1)
    model.build()
    model.set_weights([weight * 4 for weight in model.get_weights()])
    text = tf.constant(["a cat sat [MASK]", "a cat [MASK] . a [MASK]"])
    inputs = {"encode": [text], "fill_mask": [text], "next_sentence": [text, text]}
    answers = []
    for precision in PRECISIONS:
        keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
        try:
            settings = ExportSettings(precision)
            export_saved_model(model, TOKENIZER, str(tmp_path), ExampleLayout.bert(16, 3), export=settings)
            assert keras.mixed_precision.dtype_policy().name == "mixed_bfloat16"
        finally:
            keras.mixed_precision.set_dtype_policy("float32")
        served = tf.saved_model.load(str(tmp_path)).signatures
        found = {}
        for name, texts in inputs.items():
            found |= served[name](**dict(zip(("text", "text_pair"), texts, strict=False)))
        answers.append(found)
    for name in ("sequence_output", "pooled_output", "scores", "is_next"):
        near_but_not_equal(answers[1][name], answers[0][name])


@pytest.mark.parametrize("recipe", [tiny_cpu(), finetuning("mrpc")])
def test_the_serving_check_needs_a_tolerance_for_bfloat16(recipe):
    with pytest.raises(InputError, match=r"also set serving.max_difference, to 0.05"):
        with_settings(recipe, ["export.precision=mixed_bfloat16"])
    settings = ["export.precision=mixed_bfloat16", "serving.max_difference=0.05"]
    assert with_settings(recipe, settings).export.precision == "mixed_bfloat16"
