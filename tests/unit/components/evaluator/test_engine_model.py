"""The quality gate asks OpenVINO where its graph is: a good model passes, int8 that loses too much does not."""

import dataclasses
import itertools

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.model_folder import ModelFolder
from bert_keras.convert.onnx.answers import OnnxModel
from bert_keras.convert.onnx.folder import write_onnx
from bert_keras.data.tfrecord import bytes_example
from bert_keras.models.config import BertConfig
from bert_keras.models.task_models import BertForSequenceClassification
from bert_keras.saved_model.task_signatures import ServedTask
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
WORDS = "abcdefgh"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], True)
TEXTS = [" ".join(of) for of in itertools.islice(itertools.product(WORDS, repeat=3), 0, 512, 5)]


class Nonsense(tf.Module):
    """The SavedModel beside the file: it answers nothing right."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        one = tf.io.FixedLenFeature([], tf.string)
        row = tf.io.parse_example(examples, {"row_id": one, "gold": one})
        return {"row_id": row["row_id"], "gold": row["gold"], "answer": tf.fill(tf.shape(row["gold"]), "nonsense")}


def model():
    """One dimension of the values is large, constant and read by nothing: of 8 bits it leaves the others none."""
    config = BertConfig(len(TOKENIZER.vocabulary), 32, 2, 2, 64, max_position_embeddings=16)
    made = BertForSequenceClassification(config, 2)
    made.build()
    rng = np.random.default_rng(0)
    around = [float(v.path.endswith("gamma")) for v in made.weights]
    made.set_weights([one + rng.normal(0, 0.3, v.shape) for one, v in zip(around, made.weights, strict=True)])
    for layer in made.backbone.encoder_layers:
        value, output = layer.attention.value, layer.attention.output_dense
        kernel, bias, read = (np.array(weight) for weight in (value.kernel, value.bias, output.kernel))
        kernel[:, 0], bias[0], read[0] = 0.0, 1e4, 0.0
        for weight, array in ((value.kernel, kernel), (value.bias, bias), (output.kernel, read)):
            weight.assign(array)
    return made


SETTINGS = TaskSettings(max_seq_length=16)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The model, its classes about as frequent, and the answers of its file in float32."""
    settings, trained, float32 = SETTINGS, model(), tmp_path_factory.mktemp("float32")
    write_onnx(ModelFolder.in_memory(trained, TOKENIZER, task=TASK, settings=settings), str(float32), "none")
    texts = np.array([text.encode() for text in TEXTS], object)
    scores = OnnxModel(str(float32)).signatures["serving_default"].answer(texts)["scores"]
    middle = float(np.median(np.log(scores[:, 1] / scores[:, 0])))
    trained.classifier.bias.assign(np.array(trained.classifier.bias) - np.array([0.0, middle], np.float32))
    write_onnx(ModelFolder.in_memory(trained, TOKENIZER, task=TASK, settings=settings), str(float32), "none")
    golds = OnnxModel(str(float32)).signatures["serving_default"].answer(texts)["label"]
    assert 0.2 < np.mean(golds == b"1") < 0.8
    return trained, golds


def test_several_labels_are_written_as_the_saved_model_writes_them(tmp_path):
    task = dataclasses.replace(task_of("text-labels"), labels=("joy", "é"))
    trained = model()
    arrays = (
        task_type_of(task).features([TaskRow("", {"text": text}) for text in TEXTS], task, SETTINGS, TOKENIZER).arrays
    )
    # Each label is the answer to about half of the texts.
    trained.classifier.bias.assign(trained.classifier.bias - np.median(trained(arrays), axis=0))
    write_onnx(ModelFolder.in_memory(trained, TOKENIZER, task=task, settings=SETTINGS), str(tmp_path), "none")
    rows = [TaskRow(str(at), {"text": text}, ["é"]) for at, text in enumerate(TEXTS)]
    examples = tf.constant([bytes_example(row.to_features()) for row in rows])
    served = ServedTask(trained, TOKENIZER, task, SETTINGS).signatures()["evaluate"](examples=examples)
    found = EngineModel(str(tmp_path)).signatures["evaluate"](examples=examples)
    for name in ("row_id", "gold", "answer"):
        np.testing.assert_array_equal(found[name], served[name], name)
    assert len(set(found["answer"].numpy())) > 2


@pytest.mark.parametrize("name", ["squad2.0", "swag", "ner", "sts-b", "rerank"])
def test_answers_of_each_kind_are_written_as_the_saved_model_writes_them(name, tmp_path):
    task, settings = task_of(name), dataclasses.replace(SETTINGS, max_query_length=4, doc_stride=4)
    task = dataclasses.replace(task, labels=("O", "B-X", "I-X") if task.kind == "tagging" else task.labels)
    kind, config = task_type_of(task), BertConfig(len(TOKENIZER.vocabulary), 32, 2, 2, 64, max_position_embeddings=16)
    trained = kind.create_model(dataclasses.replace(config, initializer_range=0.5), task, settings, 1)
    trained.build()
    inputs, gold = {
        "span": ({"question": "a b", "context": "c d e f g h"}, [{"text": "d", "answer_start": 2}]),
        "multiple_choice": ({"text": "a b", "choices": ("c", "d e", "f", "g h")}, 1),
        "tagging": ({"text": "a b c"}, ["O", "B-X", "I-X"]),
        "regression": ({"text": "a b", "text_pair": "c"}, 1.5),
        "ranking": ({"text": "a b", "text_pair": "c"}, ["a b", 1]),
    }[task.kind]
    write_onnx(ModelFolder.in_memory(trained, TOKENIZER, task=task, settings=settings), str(tmp_path), "none")
    examples = tf.constant([bytes_example(TaskRow("0", inputs, gold).to_features())])
    served = ServedTask(trained, TOKENIZER, task, settings).signatures()["evaluate"](examples=examples)
    asked = EngineModel(str(tmp_path)).signatures["evaluate"](examples=examples)
    answers = [outputs["answer"].numpy()[0].decode() for outputs in (asked, served)]
    if task.kind in ("regression", "ranking"):
        assert float(answers[0]) == pytest.approx(float(answers[1]), rel=1e-5)
    else:
        assert answers[0] == answers[1]


@pytest.mark.parametrize("quantize, is_blessed", [("none", True), ("int8", False)])
def test_the_gate_judges_what_the_engine_answers(trained, quantize, is_blessed, tmp_path):
    float32, golds = trained
    judged_model = saved(Nonsense(), tmp_path / "model")
    serving = str(tmp_path / "model" / "Format-Serving")
    folder = ModelFolder.in_memory(float32, TOKENIZER, task=TASK, settings=SETTINGS)
    write_onnx(folder, serving, quantize, [{"text": text} for text in TEXTS])
    rows = (
        TaskRow(str(at), {"text": text}, gold.decode())
        for at, (text, gold) in enumerate(zip(TEXTS, golds, strict=True))
    )
    examples = examples_of({"eval": (bytes_example(row.to_features()) for row in rows)}, tmp_path / "examples")
    config = task_eval_config(TASK, TaskGate(min_score=0.95), SliceSettings(lengths=()))
    blessed, evaluation = judged(tmp_path, config, examples, judged_model)
    assert blessed == is_blessed
    accuracy = evaluated(evaluation)["accuracy"]
    if is_blessed:
        assert accuracy == 1.0 and gate_failures(evaluation) == []
    else:
        assert 0.1 < accuracy < 0.9
        assert {(failure.metric, failure.kind) for failure in gate_failures(evaluation)} >= {("accuracy", "value")}
