"""A model is served in the configured precision, independent of training."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_keras.data.example_format import ExampleLayout
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.models.task_models import BertForSequenceClassification
from bert_keras.saved_model.pretrained import export_saved_model
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.wordpiece import BertTokenizer
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.finetuning import finetuning
from pipeline.recipes.settings import with_settings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat", "dog", "sat", "ran", "."]
TOKENIZER = BertTokenizer(WORDS, lower_case=True)
CONFIG = BertConfig(len(WORDS), 32, 1, 2, 64, max_position_embeddings=16)


def texts():
    return tf.constant(["a cat sat [MASK]", "a dog [MASK] . a [MASK]"])


def drawn(model):
    model.build()
    model.set_weights([weight * 4 for weight in model.get_weights()])
    return model


def products(directory):
    """The dtypes of the matrix products in a SavedModel."""
    (graph,) = SavedModel.FromString((directory / "saved_model.pb").read_bytes()).meta_graphs
    nodes = [node for function in graph.graph_def.library.function for node in function.node_def]
    return {tf.as_dtype(node.attr["T"].type) for node in nodes if node.op in ("MatMul", "BatchMatMulV2")}


def near_but_not_equal(low, full):
    """Compare up to bfloat16's rounding, which keeps three digits."""
    assert low.dtype == full.dtype == tf.float32
    np.testing.assert_allclose(low, full, rtol=0.1, atol=0.05)
    assert np.abs(low - full).max() > 1e-6


@pytest.fixture
def trained_in_bfloat16():
    """Train with a global bfloat16 policy left set."""
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    yield
    keras.mixed_precision.set_dtype_policy("float32")


@pytest.mark.slow
def test_a_pretrained_model(tmp_path, trained_in_bfloat16):
    model = drawn(BertForPreTraining(CONFIG, seed=1))
    served = {}
    for precision in ("float32", "mixed_bfloat16"):
        directory = tmp_path / precision
        export_saved_model(
            model, TOKENIZER, str(directory), ExampleLayout.bert(16, 3), export=ExportSettings(precision)
        )
        served[precision] = tf.saved_model.load(str(directory)).signatures
    assert keras.mixed_precision.dtype_policy().name == "mixed_bfloat16"
    assert products(tmp_path / "float32") == {tf.float32}
    # What computes in float32 even there: the softmax over the vocabulary has its logits so.
    assert tf.bfloat16 in products(tmp_path / "mixed_bfloat16")
    full, low = served["float32"], served["mixed_bfloat16"]
    encoded, roughly = full["encode"](text=texts()), low["encode"](text=texts())
    for name in ("sequence_output", "pooled_output"):
        near_but_not_equal(roughly[name], encoded[name])
    near_but_not_equal(low["fill_mask"](text=texts())["scores"], full["fill_mask"](text=texts())["scores"])
    pair = {"text": texts(), "text_pair": texts()}
    near_but_not_equal(low["next_sentence"](**pair)["is_next"], full["next_sentence"](**pair)["is_next"])


def test_a_task_model(tmp_path):
    task = Task("sst-2", "classification", "glue", ("accuracy",), labels=("0", "1"))
    model = drawn(BertForSequenceClassification(CONFIG, 2, seed=1))
    scores = {}
    for precision in ("float32", "mixed_bfloat16"):
        directory = tmp_path / precision
        export_task_model(
            model, task, TaskSettings(max_seq_length=16), TOKENIZER, str(directory), ExportSettings(precision)
        )
        scores[precision] = tf.saved_model.load(str(directory)).signatures["serving_default"](text=texts())["scores"]
        assert (tf.bfloat16 in products(directory)) == (precision == "mixed_bfloat16")
    near_but_not_equal(scores["mixed_bfloat16"], scores["float32"])


@pytest.mark.parametrize("recipe", [tiny_cpu(), finetuning("mrpc")])
def test_the_serving_check_needs_a_tolerance_for_bfloat16(recipe):
    with pytest.raises(InputError, match=r"also set serving.max_difference, to 0.05"):
        with_settings(recipe, ["export.precision=mixed_bfloat16"])
    settings = ["export.precision=mixed_bfloat16", "serving.max_difference=0.05"]
    assert with_settings(recipe, settings).export.precision == "mixed_bfloat16"
