"""The SavedModel's answers to raw text equal the model's answers to features, for every task type."""

import contextlib
import dataclasses
import functools
import itertools
import json
import types
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from scipy.special import expit, softmax
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from bert_keras.finetuning.training import TrainedTask
from bert_keras.models.config import BertConfig
from bert_keras.models.ensemble import Ensemble
from bert_keras.saved_model import task_signatures
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.answers import parse_answer
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TaskSettings, TaskSpec
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from serving import protos
from serving.server import Server
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.models.task_models import InProcess, serialized
from tests.support.serving.task_client import TaskClient

LETTERS = "abcdefghijklmnopqrstuvwxyzß漢.,'?"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "the", "cat", *LETTERS, *("##" + letter for letter in LETTERS)], True)
TASKS = {
    "classification": task_of("mrpc"),
    "multi_label": dataclasses.replace(task_of("text-pair-labels"), labels=("joy", "love", "é")),
    "regression": task_of("sts-b"),
    "multiple_choice": task_of("codah"),
    "tagging": dataclasses.replace(task_of("ner"), labels=("B-person", "I-person", "O")),
    "span": task_of("squad2.0"),
}
SETTINGS = TaskSettings(max_seq_length=24, max_query_length=8, doc_stride=6, truncation="head_tail")
SIZES = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 32, max_position_embeddings=32)
DEPTH = depth_of(SIZES, SETTINGS.max_seq_length)
TEXTS = ("", "\x00\u200b", "Café 漢字, The CAT's", "the " * 40 + "end", "What cat?")


def rows_of(kind):
    """Every text beside every other one."""
    pairs = list(itertools.product(TEXTS, TEXTS))
    if kind == "multiple_choice":
        inputs = [{"text": a, "choices": (b, "a cat", b + " sat", "the")} for a, b in pairs]
    elif kind == "tagging":
        # Rows have words, a space between two.
        inputs = [{"text": text} for text in ("Café 漢字, The CAT's", "\u200b a \x00", "the " * 40 + "end", "cats")]
    else:
        first, second = ("question", "context") if kind == "span" else ("text", "text_pair")
        inputs = [{first: a, second: b} for a, b in pairs]
    return [TaskRow(f"row {i}", of_row) for i, of_row in enumerate(inputs)]


def sharp(task, settings=SETTINGS, seed=3):
    """A model with different outputs for different texts."""
    model = task_type_of(task).create_model(SIZES, task, settings, seed)
    model.build()
    model.set_weights([w * 8 for w in model.get_weights()])
    return model


# An ensemble has no signatures of its encoder: so these exports take half of the time. One has two models.
ENSEMBLES = {"multi_label": (1, 2), "regression": (3,), "multiple_choice": (3,)}


def model_of(task):
    models = [sharp(task, seed=seed) for seed in ENSEMBLES.get(task.kind, [3])]
    return Ensemble(models) if task.kind in ENSEMBLES else models[0]


@pytest.fixture(scope="module", params=TASKS)
def exported(request, tmp_path_factory):
    """A task's model, rows, and SavedModel, with a client of it; one is that of a server.

    Models of several labels are trained and exported in bfloat16, beside the same in float32, whose numbers are served.
    """
    task, traces = TASKS[request.param], []
    directory = tmp_path_factory.mktemp(task.kind) / "1"

    def counted(*arguments):
        made = label_answers(*arguments)
        return dataclasses.replace(made, answer=lambda *texts: traces.append(texts) or made.answer(*texts))

    label_answers = task_signatures.label_answers
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16" if task.kind == "multi_label" else "float32")
    try:
        with mock.patch.object(task_signatures, "label_answers", counted):
            export_task_model(model_of(task), task, SETTINGS, TOKENIZER, str(directory))
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    signatures = tf.saved_model.load(str(directory)).signatures
    in_memory, rows = TrainedTask(model_of(task), task, SETTINGS, TOKENIZER), rows_of(task.kind)
    with contextlib.ExitStack() as stack:
        client = InProcess(signatures)
        if task.kind == "classification":
            server = stack.enter_context(Server(directory.parent, grpc_port=0, rest_port=0))
            assert server.wait_until_available(120)
            client = stack.enter_context(TaskClient(f"127.0.0.1:{server.grpc_port}", timeout=300))
        yield types.SimpleNamespace(
            task=task,
            model=in_memory.model,
            directory=directory,
            traces=traces,
            rows=rows,
            outputs=in_memory.outputs(rows, 64),
            answers=in_memory.answers(rows, 64),
            signatures=signatures,
            client=client,
        )


of_classes, of_tags = (
    pytest.mark.parametrize("exported", [kind], indirect=True) for kind in ("classification", "tagging")
)
probabilities = functools.partial(softmax, axis=-1)


def column(rows, name):
    return [list(row.inputs[name]) if name == "choices" else row.inputs[name] for row in rows]


def test_served_answers_equal_the_model_on_features(exported):
    rows, client = exported.rows, exported.client
    (outputs, features), answers = exported.outputs, exported.answers
    assert len({str(answer) for answer in answers}) > 1
    kind = exported.task.kind
    if kind in ("classification", "multi_label"):
        found = client.classify(column(rows, "text"), column(rows, "text_pair"))
        scores = [[dict(of_row)[label] for label in exported.task.labels] for of_row in found]
        likely = [[name for name in exported.task.labels if dict(of_row)[name] >= 0.5] for of_row in found]
        assert answers == (likely if kind == "multi_label" else [of_row[0][0] for of_row in found])
        expected = (expit if kind == "multi_label" else probabilities)(outputs.astype("float64"))
        assert_equal_but_for_rounding(scores, expected, DEPTH, np.abs(outputs).max())
    elif kind == "regression":
        found = client.regress(column(rows, "text"), column(rows, "text_pair"))
        assert_equal_but_for_rounding(found, answers, DEPTH)
    elif kind == "multiple_choice":
        found = client.choose(column(rows, "text"), column(rows, "choices"))
        scores = [scores for _, scores in found]
        # Two choices can be equal but for rounding: each side then chooses its own.
        assert [of_row[choice] for choice, of_row in found] == np.max(scores, -1).tolist()
        assert_equal_but_for_rounding(scores, probabilities(outputs), DEPTH, np.abs(outputs).max())
    elif kind == "tagging":
        found = client.tag(column(rows, "text"))
        assert [[word.tag for word in of_row] for of_row in found] == answers
        assert [[word.word for word in of_row] for of_row in found] == [t.split() for t in column(rows, "text")]
        row, place = np.nonzero(features.windows >= 0)
        scores = probabilities(outputs).max(-1)
        seen = [found[i][word].score for i, word in zip(row, features.windows[row, place], strict=True)]
        assert_equal_but_for_rounding(seen, scores[row, place], DEPTH, np.abs(outputs).max())
        assert len(seen) + sum(word.score == 0 for of_row in found for word in of_row) == sum(map(len, found))
    else:
        found = client.answer(column(rows, "question"), column(rows, "context"))
        assert [answer.text for answer in found] == answers
        assert {answer.text for answer in found} >= {""}
        for answer, context in zip(found, column(rows, "context"), strict=True):
            assert not answer.text or context[answer.start : answer.end] == answer.text


def test_evaluate_returns_the_served_answers(exported):
    rows = [dataclasses.replace(row, gold=gold) for row, gold in zip(exported.rows, itertools.cycle(["é", 1, None]))]
    found = exported.signatures["evaluate"](examples=tf.constant(serialized(rows)))
    assert [row_id.decode() for row_id in found["row_id"].numpy()] == [row.row_id for row in rows]
    assert [json.loads(gold) for gold in found["gold"].numpy()] == [row.gold for row in rows]
    answers = [parse_answer(exported.task.kind, answer) for answer in found["answer"].numpy()]
    if exported.task.kind == "regression":
        again = exported.client.regress(column(rows, "text"), column(rows, "text_pair"))
        assert_equal_but_for_rounding(answers, again, DEPTH)
        assert_equal_but_for_rounding(answers, exported.answers, DEPTH)
    else:
        assert answers == exported.answers
    assert ("null_score_difference" in found) == (exported.task.kind == "span")


def test_empty_batches(exported):
    specs = exported.signatures["serving_default"].structured_input_signature[1]
    nothing = {name: tf.zeros([0] * len(spec.shape), tf.string) for name, spec in specs.items()}
    for output in exported.signatures["serving_default"](**nothing).values():
        assert output.shape[0] == 0
    assert exported.signatures["evaluate"](examples=tf.zeros([0], tf.string))["answer"].shape == (0,)


def test_bytes_that_are_not_utf8_are_left_out(exported):
    specs = exported.signatures["serving_default"].structured_input_signature[1]
    texts = [
        {name: tf.constant(text if len(spec.shape) == 1 else [text * 3]) for name, spec in specs.items()}
        for text in ([b"\xffa c\xfeat's\xc3"], ["a cat's"])
    ]
    found, expected = (exported.signatures["serving_default"](**of_one) for of_one in texts)
    for name in set(found) - {"answer"}:
        assert found[name].numpy().tolist() == expected[name].numpy().tolist(), name


@of_classes
def test_encode_equals_the_encoder(exported):
    pair = {"text": tf.constant(["a cat"]), "text_pair": tf.constant(["the end"])}
    row = TaskRow("0", {"text": "a cat", "text_pair": "the end"})
    arrays = task_type_of(exported.task).features([row], exported.task, SETTINGS, TOKENIZER).arrays
    expected = exported.model.backbone(arrays)["sequence_output"]
    assert_equal_but_for_rounding(exported.signatures["encode_pair"](**pair)["sequence_output"], expected, DEPTH)
    assert exported.signatures["encode"](text=pair["text"])["tokens"].shape == (1, 4)


def test_encode_has_a_pooled_output_if_it_was_trained(exported):
    """Heads of spans and tags do not read the pooler."""
    assert exported.task.reads_pooler == (exported.task.kind not in ("span", "tagging"))
    encoders = {name for name in exported.signatures if name.startswith("encode")}
    assert encoders == (set() if exported.task.kind in ENSEMBLES else {"encode", "encode_pair"})
    for name in encoders:
        outputs = exported.signatures[name].structured_outputs
        assert "sequence_output" in outputs
        assert ("pooled_output" in outputs) == exported.task.reads_pooler


@of_classes
def test_answers_are_traced_once_for_all_signatures(exported):
    """Tracing is most of the time: serving_default, classify, evaluate and the warm-up requests share one trace."""
    assert len(exported.traces) == 1


@pytest.mark.parametrize("exported", ["span"], indirect=True)
def test_a_graph_has_one_op_that_is_not_tensorflows_own(exported):
    graph = exported.signatures["serving_default"].graph.as_graph_def()
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    ops = {node.op for node in nodes} - {function.signature.name for function in graph.library.function}
    assert {op for op in ops if not hasattr(tf.raw_ops, op)} == {"WordpieceTokenizeWithOffsets"}


def test_files_for_further_training_are_written(exported):
    directory = exported.directory
    task = TaskSpec.load(str(directory)).task
    assert task == exported.task
    settings = TaskSettings(**json.loads((directory / TASK_SETTINGS_FILE).read_text()))
    assert settings == SETTINGS
    assert tuple((directory / "vocab.txt").read_text().splitlines()) == TOKENIZER.vocabulary
    again = task_type_of(task).create_model(
        BertConfig.from_json((directory / "bert_config.json").read_text()), task, settings, 7
    )
    again.build()
    again.load_weights(directory / "model.weights.h5")
    first = exported.model.models[0] if task.kind in ENSEMBLES else exported.model
    for ours, theirs in zip(again.get_weights(), first.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_every_text_signature_has_a_warm_up_request(exported):
    from tensorflow_serving.apis import prediction_log_pb2

    path = exported.directory / "assets.extra" / "tf_serving_warmup_requests"
    seen = set()
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log
        name = log.request.model_spec.signature_name
        specs = exported.signatures[name].structured_input_signature[1]
        feeds = {text: tf.constant(tf.make_ndarray(value)) for text, value in log.request.inputs.items()}
        assert feeds.keys() == specs.keys() and all(specs[text].is_compatible_with(feeds[text]) for text in feeds)
        # Beside each is the answer of the model in memory.
        assert set(exported.signatures[name].structured_outputs) == set(log.response.outputs)
        seen.add(name)
    assert seen == set(exported.signatures) - {"evaluate"}


@of_classes
def test_classify_equals_predict(exported):
    """Over gRPC, with the pair as the context of all Examples."""
    rows = [row for row in exported.rows if row.inputs["text_pair"] == "What cat?"]
    assert len(rows) == len(TEXTS)
    given = protos.Input()
    given.example_list_with_context.context.features.feature["text_pair"].bytes_list.value.append(b"What cat?")
    for row in rows:
        example = given.example_list_with_context.examples.add()
        example.features.feature["text"].bytes_list.value.append(row.inputs["text"].encode())
    spec = protos.ModelSpec(name="bert", signature_name="classify")
    request = protos.ClassificationRequest(model_spec=spec, input=given)
    result = exported.client._prediction.Classify(request).result
    found = [[(one.label, one.score) for one in row.classes] for row in result.classifications]
    expected = exported.client.classify(column(rows, "text"), column(rows, "text_pair"))
    assert [sorted(row, key=lambda one: -one[1]) for row in found] == expected


@pytest.mark.parametrize("exported", ["regression"], indirect=True)
def test_regress_equals_predict(exported):
    rows = exported.rows[: len(TEXTS)]
    found = exported.signatures["regress"](inputs=tf.constant(serialized(rows)))["outputs"].numpy().tolist()
    assert found == exported.client.regress(column(rows, "text"), column(rows, "text_pair"))


def test_example_signatures_have_their_method_names(exported):
    (graph,) = SavedModel.FromString((exported.directory / "saved_model.pb").read_bytes()).meta_graphs
    methods = {name: graph.signature_def[name].method_name.rpartition("/")[2] for name in exported.signatures}
    special = {name: {"classify": "classify"} for name in ("classification", "multi_label")}
    special |= {"regression": {"regress": "regress"}}
    assert methods == dict.fromkeys(exported.signatures, "predict") | special.get(exported.task.kind, {})


@pytest.mark.parametrize("exported", ["multiple_choice"], indirect=True)
def test_choices(exported):
    assert exported.client.choose(["a cat", "the"], [["sat"], ["end"]]) == [(0, [1.0]), (0, [1.0])]
    uneven = [TaskRow("x", {"text": "a", "choices": ("b", "c")}), TaskRow("y", {"text": "a", "choices": ("b",)})]
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 1 of the batch has fewer choices than another"):
        exported.signatures["evaluate"](examples=tf.constant(serialized(uneven)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="text 0 has no choices"):
        exported.signatures["serving_default"](text=tf.constant(["a"]), choices=tf.zeros([1, 0], tf.string))


@of_tags
def test_words_of_prose(exported):
    prose = 'Was  "Café 漢字,"\n\u200b —\u3000(the) cat\'s ?!'
    (words, nothing) = exported.client.tag([prose, " \t"])
    assert [word.word for word in words] == ["Was", '"Café', '漢字,"', "\u200b", "—", "(the)", "cat's", "?!"]
    where = [prose[word.start : word.end] for word in words]
    # Punctuation at the edges is left out, that of a word of nothing else is not.
    assert where == ["Was", "Café", "漢字", "\u200b", "—", "the", "cat's", "?!"]
    assert words[3].tag == "O" and words[3].score == 0  # of a zero-width space nothing is left
    assert all(word.score > 0 for word in words if word.word != "\u200b")
    assert nothing == []


@of_tags
def test_truncated_words_are_tagged_o(exported):
    """Of 22 places a quarter (6, 5.5 rounded up) is the head's."""
    (words,) = exported.client.tag([" ".join(["the"] * 40)])
    assert len(words) == 40
    assert [i for i, word in enumerate(words) if word.score == 0] == list(range(6, 24))
    assert {word.tag for word in words[6:24]} == {"O"}


@pytest.mark.slow
def test_lstms_are_exported_without_cudnn(tmp_path):
    task = TASKS["tagging"]
    settings = dataclasses.replace(SETTINGS, features="last", lstm_units=8)
    trained = TrainedTask(sharp(task, settings), task, settings, TOKENIZER)
    export_task_model(trained.model, task, settings, TOKENIZER, str(tmp_path))
    rows = rows_of(task.kind)
    answers = trained.answers(rows, 64)
    assert len(set(itertools.chain(*answers))) == 3
    found = tf.saved_model.load(str(tmp_path)).signatures["evaluate"](examples=tf.constant(serialized(rows)))
    assert [parse_answer(task.kind, answer) for answer in found["answer"].numpy()] == answers
