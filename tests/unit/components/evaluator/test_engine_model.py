"""The quality gate asks OpenVINO where its graph is: a good model passes, int8 that loses too much does not."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx.folder import write_onnx
from bert_keras.data.tfrecord import bytes_example
from bert_keras.models.config import BertConfig
from bert_keras.saved_model.task_signatures import ServedTask, _evaluate
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.evaluator.engine_model import EngineModel
from components.evaluator.results import evaluated, gate_failures
from components.evaluator.settings import SliceSettings
from pipeline.dags.eval_gate import task_eval_config
from pipeline.recipes.finetuning import TaskGate
from tests.support.pipeline.judged_models import examples_of, judged, saved

TASK = task_of("sst-2")
LABELLED = dataclasses.replace(task_of("text-labels"), labels=("joy", "é"))
WORDS = "abcdefgh"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], True)
TEXTS = [" ".join(of) for of in itertools.islice(itertools.product(WORDS, repeat=3), 0, 512, 10)]
SETTINGS = TaskSettings(max_seq_length=16, max_query_length=4, doc_stride=4)
CONFIG = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 32, max_position_embeddings=16, initializer_range=0.5)


def made(task):
    model = task_type_of(task).create_model(CONFIG, task, SETTINGS, 1)
    model.build()
    return model


def outputs_of(model, task):
    rows = [TaskRow("", {"text": text}) for text in TEXTS]
    return np.array(model(task_type_of(task).features(rows, task, SETTINGS, TOKENIZER).arrays))


def balanced(model, task):
    """Changes the model: each label is the answer to about half of the texts."""
    model.classifier.bias.assign(model.classifier.bias - np.median(outputs_of(model, task), axis=0))
    return model


def write(model, task, directory, quantize="none"):
    folder = ModelFolder.in_memory(model, TOKENIZER, task=task, settings=SETTINGS)
    write_onnx(folder, str(directory), quantize, [{"text": text} for text in TEXTS])


def records(rows):
    return [bytes_example(row.to_features()) for row in rows]


CASES = {
    "squad2.0": ({"question": "a b", "context": "c d e f g h"}, [{"text": "d", "answer_start": 2}]),
    "swag": ({"text": "a b", "choices": ("c", "d e", "f", "g h")}, 1),
    "ner": ({"text": "a b c"}, ["O", "B-X", "I-X"]),
    "sts-b": ({"text": "a b", "text_pair": "c"}, 1.5),
    "rerank": ({"text": "a b", "text_pair": "c"}, ["a b", 1]),
}


def check_written_as_the_saved_model_writes_them(model, task, rows, folder):
    """Returns the answers."""
    write(model, task, folder)
    examples = tf.constant(records(rows))
    answers = ServedTask(model, TOKENIZER, task, SETTINGS)._answers
    served = _evaluate(answers, answers.answer, examples)  # as the signature, untraced
    found = EngineModel(str(folder)).signatures["evaluate"](examples=examples)
    assert found.keys() == served.keys()
    for name in ("row_id", "gold"):
        np.testing.assert_array_equal(found[name], served[name], name)
    answers, expected = ([answer.decode() for answer in of["answer"].numpy()] for of in (found, served))
    if task.kind in ("regression", "ranking"):
        assert [*map(float, answers)] == pytest.approx([*map(float, expected)], rel=1e-5)
    else:
        assert answers == expected
    return answers


@pytest.mark.parametrize("name", CASES)
def test_answers_of_each_kind_are_written_as_the_saved_model_writes_them(name, tmp_path):
    task, (inputs, gold) = task_of(name), CASES[name]
    task = dataclasses.replace(task, labels=("O", "B-X", "I-X") if task.kind == "tagging" else task.labels)
    check_written_as_the_saved_model_writes_them(made(task), task, [TaskRow("7", inputs, gold)], tmp_path)


def test_several_labels_are_written_as_the_saved_model_writes_them(tmp_path):
    rows = [TaskRow(str(at), {"text": text}, ["é"]) for at, text in enumerate(TEXTS)]
    answers = check_written_as_the_saved_model_writes_them(balanced(made(LABELLED), LABELLED), LABELLED, rows, tmp_path)
    assert len(set(answers)) > 2


class Nonsense(tf.Module):
    """The SavedModel beside the file: it answers nothing right."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        one = tf.io.FixedLenFeature([], tf.string)
        row = tf.io.parse_example(examples, {"row_id": one, "gold": one})
        return {"row_id": row["row_id"], "gold": row["gold"], "answer": tf.fill(tf.shape(row["gold"]), "nonsense")}


@pytest.fixture(scope="module")
def trained():
    """A model of labels, and its answers to the texts.

    One dimension of its values is large, constant and read by nothing: of 8 bits it leaves the others none.
    """
    model = made(TASK)
    (layer,) = model.backbone.encoder_layers
    value, output = layer.attention.value, layer.attention.output_dense
    kernel, bias, read = (np.array(weight) for weight in (value.kernel, value.bias, output.kernel))
    kernel[:, 0], bias[0], read[0] = 0.0, 1e4, 0.0
    for weight, array in ((value.kernel, kernel), (value.bias, bias), (output.kernel, read)):
        weight.assign(array)
    golds = np.where(np.diff(outputs_of(balanced(model, TASK), TASK))[:, 0] > 0, "1", "0")
    assert 0.2 < np.mean(golds == "1") < 0.8
    return model, golds


@pytest.mark.parametrize("quantize, is_blessed", [("none", True), ("int8", False)])
def test_the_gate_judges_what_the_engine_answers(trained, quantize, is_blessed, tmp_path):
    model, golds = trained
    judged_model = saved(Nonsense(), tmp_path / "model")
    write(model, TASK, tmp_path / "model" / "Format-Serving", quantize)
    rows = [TaskRow(str(at), {"text": text}, gold) for at, (text, gold) in enumerate(zip(TEXTS, golds, strict=True))]
    examples = examples_of({"eval": records(rows)}, tmp_path / "examples")
    config = task_eval_config(TASK, TaskGate(min_score=0.95), SliceSettings(lengths=()))
    blessed, evaluation = judged(tmp_path, config, examples, judged_model)
    assert blessed == is_blessed
    accuracy = evaluated(evaluation)["accuracy"]
    if is_blessed:
        assert accuracy == 1.0 and gate_failures(evaluation) == []
    else:
        assert 0.1 < accuracy < 0.9
        assert {(failure.metric, failure.kind) for failure in gate_failures(evaluation)} >= {("accuracy", "value")}
