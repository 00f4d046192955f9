"""The SavedModel's answers to raw text equal the model's answers to features, for every task type."""

import csv
import dataclasses
import itertools
import json
import os
import types
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_keras.finetuning.training import TrainedTask
from bert_keras.models.config import BertConfig
from bert_keras.models.ensemble import Ensemble
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.answers import parse_answer
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TaskSettings, TaskSpec
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from serving import protos
from serving.client import ClientError
from serving.server import Server
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.serving.task_client import TaskClient

DATA = os.environ.get("BERT_DATA_DIR")
LETTERS = "abcdefghijklmnopqrstuvwxyzß漢.,'?"
TAGS = ("B-person", "I-person", "O")
TASKS = {
    "classification": task_of("mrpc"),
    "multi_label": dataclasses.replace(task_of("text-pair-labels"), labels=("joy", "love", "é")),
    "regression": task_of("sts-b"),
    "multiple_choice": task_of("codah"),
    "tagging": dataclasses.replace(task_of("ner"), labels=TAGS),
    "span": task_of("squad2.0"),
}
SETTINGS = TaskSettings(max_seq_length=24, max_query_length=8, doc_stride=6, truncation="head_tail")
SIZES = BertConfig(1, 32, 2, 2, 64, max_position_embeddings=32)
DEPTH = depth_of(SIZES, SETTINGS.max_seq_length)
TEXTS = ("", "\x00\u200b", "Café 漢字, The CAT's", "the " * 40 + "end", "What cat?")


def columns(*path):
    with Path(DATA, *path).open(encoding="utf-8-sig") as lines:
        return list(itertools.islice(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 201))[1:]


def real_inputs(kind):
    """Inputs of rows of the official data."""
    if kind in ("classification", "multi_label"):
        return [{"text": row[3], "text_pair": row[4]} for row in columns("glue", "MRPC", "msr_paraphrase_train.txt")]
    if kind == "regression":
        return [{"text": row[7], "text_pair": row[8]} for row in columns("glue", "STS-B", "train.tsv")]
    if kind == "multiple_choice":
        return [{"text": row[1], "choices": tuple(row[2:6])} for row in columns("codah", "fold0_train.tsv")]
    if kind == "tagging":
        lines = Path(DATA, "wnut17", "emerging.dev.conll").read_text().split("\n")
        sentences = itertools.groupby(lines, lambda line: bool(line.strip()))
        texts = [" ".join(line.split("\t")[0] for line in of_one) for is_one, of_one in sentences if is_one]
        return [{"text": text} for text in texts[:200]]
    articles = json.loads(Path(DATA, "squad", "dev-v2.0-even-articles.json").read_text())["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"][:3]]
    return [{"question": p["qas"][0]["question"], "context": p["context"][:400]} for p in paragraphs[:40]]


def made_up_inputs(kind):
    """Every text beside every other one."""
    pairs = list(itertools.product(TEXTS, TEXTS))
    if kind == "multiple_choice":
        return [{"text": a, "choices": (b, "a cat", b + " sat", "the")} for a, b in pairs]
    if kind == "tagging":
        # Rows have words, a space between two.
        return [{"text": text} for text in ("Café 漢字, The CAT's", "\u200b a \x00", "the " * 40 + "end", "cats")]
    first, second = ("question", "context") if kind == "span" else ("text", "text_pair")
    return [{first: a, second: b} for a, b in pairs]


@pytest.fixture(scope="module")
def tokenizer():
    if DATA:  # its characters and commonest words: test_wordpiece_graph.py has the whole of it
        vocabulary = Path(DATA, "vocab", "bert-base-uncased-vocab.txt").read_text(encoding="utf-8").split("\n")
        return BertTokenizer(vocabulary[:6000], lower_case=True)
    return BertTokenizer([*SPECIAL_TOKENS, "the", "cat", *LETTERS, *("##" + letter for letter in LETTERS)], True)


def sharp(task, tokenizer, settings=SETTINGS, seed=1):
    """A model with different outputs for different texts."""
    config = dataclasses.replace(SIZES, vocab_size=len(tokenizer.vocabulary))
    model = task_type_of(task).create_model(config, task, settings, seed)
    model.build()
    model.set_weights([w * 8 for w in model.get_weights()])
    return model


@pytest.fixture(scope="module", params=TASKS)
def exported(request, tokenizer, tmp_path_factory):
    """A task's model, rows, its SavedModel, and a client of a server that serves it."""
    task = TASKS[request.param]
    model = sharp(task, tokenizer)
    directory = tmp_path_factory.mktemp(task.kind) / "1"
    export_task_model(model, task, SETTINGS, tokenizer, str(directory))
    inputs = made_up_inputs(task.kind) + (real_inputs(task.kind) if DATA else [])
    with Server(directory.parent, grpc_port=0, rest_port=0) as server:
        assert server.wait_until_available(120)
        with TaskClient(f"127.0.0.1:{server.grpc_port}", timeout=300) as client:
            yield types.SimpleNamespace(
                task=task,
                directory=directory,
                rows=[TaskRow(f"row {i}", of_row, None) for i, of_row in enumerate(inputs)],
                trained=TrainedTask(model, task, SETTINGS, tokenizer),
                signatures=tf.saved_model.load(str(directory)).signatures,
                client=client,
            )


def column(rows, name):
    return [list(row.inputs[name]) if name == "choices" else row.inputs[name] for row in rows]


def softmax(logits):
    odds = np.exp(logits.astype("float64") - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)


def serialized(rows):
    features = [
        {name: tf.train.Feature(bytes_list=tf.train.BytesList(value=v)) for name, v in row.to_features().items()}
        for row in rows
    ]
    return [tf.train.Example(features=tf.train.Features(feature=f)).SerializeToString() for f in features]


def test_grpc_answers_equal_the_model_on_features(exported):
    rows, client = exported.rows, exported.client
    outputs, features = exported.trained.outputs(rows, 64)
    answers = exported.trained.answers(rows, 64)
    assert len({str(answer) for answer in answers}) > 1
    kind = exported.task.kind
    if kind in ("classification", "multi_label"):
        found = client.classify(column(rows, "text"), column(rows, "text_pair"))
        scores = [[dict(of_row)[label] for label in exported.task.labels] for of_row in found]
        likely = [[name for name in exported.task.labels if dict(of_row)[name] >= 0.5] for of_row in found]
        assert answers == (likely if kind == "multi_label" else [of_row[0][0] for of_row in found])
        sigmoid = 1 / (1 + np.exp(-outputs.astype("float64")))
        expected = sigmoid if kind == "multi_label" else softmax(outputs)
        assert_equal_but_for_rounding(scores, expected, DEPTH, np.abs(outputs).max())
    elif kind == "regression":
        found = client.regress(column(rows, "text"), column(rows, "text_pair"))
        assert_equal_but_for_rounding(found, answers, DEPTH)
    elif kind == "multiple_choice":
        found = client.choose(column(rows, "text"), column(rows, "choices"))
        scores = [scores for _, scores in found]
        # Two choices can be equal but for rounding: each side then chooses its own.
        assert [of_row[choice] for choice, of_row in found] == np.max(scores, -1).tolist()
        assert_equal_but_for_rounding(scores, softmax(outputs), DEPTH, np.abs(outputs).max())
    elif kind == "tagging":
        found = client.tag(column(rows, "text"))
        assert [[word.tag for word in of_row] for of_row in found] == answers
        assert [[word.word for word in of_row] for of_row in found] == [t.split() for t in column(rows, "text")]
        row, place = np.nonzero(features.windows >= 0)
        scores = softmax(outputs).max(-1)
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
    expected = exported.trained.answers(rows, 64)
    if exported.task.kind == "regression":
        again = exported.client.regress(column(rows, "text"), column(rows, "text_pair"))
        assert_equal_but_for_rounding(answers, again, DEPTH)
        assert_equal_but_for_rounding(answers, expected, DEPTH)
        expected = answers
    assert answers == expected
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


def test_encode_equals_the_encoder(exported):
    pair = {"text": tf.constant(["a cat"]), "text_pair": tf.constant(["the end"])}
    task, row = task_of("mrpc"), TaskRow("0", {"text": "a cat", "text_pair": "the end"})
    arrays = task_type_of(task).features([row], task, SETTINGS, exported.trained.tokenizer).arrays
    expected = exported.trained.model.backbone(arrays)["sequence_output"]
    encoded = exported.signatures["encode_pair"](**pair)
    assert_equal_but_for_rounding(encoded["sequence_output"], expected, DEPTH)
    assert exported.signatures["encode"](text=pair["text"])["tokens"].shape == (1, 4)
    # Heads of spans and tags do not read the pooler, so nothing trained it.
    assert ("pooled_output" in encoded) == (exported.trained.task.kind not in ("span", "tagging"))


def test_files_for_further_training_are_written(exported):
    directory = exported.directory
    task = TaskSpec.load(str(directory)).task
    assert task == exported.task
    settings = TaskSettings(**json.loads((directory / TASK_SETTINGS_FILE).read_text()))
    assert settings == SETTINGS
    assert tuple((directory / "vocab.txt").read_text().splitlines()) == exported.trained.tokenizer.vocabulary
    again = task_type_of(task).create_model(
        BertConfig.from_json((directory / "bert_config.json").read_text()), task, settings, 7
    )
    again.build()
    again.load_weights(directory / "model.weights.h5")
    for ours, theirs in zip(again.get_weights(), exported.trained.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_every_text_signature_has_a_warm_up_request(exported):
    from tensorflow_serving.apis import prediction_log_pb2

    path = exported.directory / "assets.extra" / "tf_serving_warmup_requests"
    seen = set()
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log
        name = log.request.model_spec.signature_name
        feeds = {text: tf.constant(tf.make_ndarray(value)) for text, value in log.request.inputs.items()}
        # Beside each is the answer of the model in memory.
        assert set(exported.signatures[name](**feeds)) == set(log.response.outputs)
        seen.add(name)
    assert seen == set(exported.signatures) - {"evaluate"}


@pytest.mark.parametrize("exported", ["classification", "regression"], indirect=True)
def test_classify_and_regress_equal_predict(exported):
    """Classify and Regress over gRPC, with the pair as the context of all Examples."""
    rows = [row for row in exported.rows if row.inputs["text_pair"] == "What cat?"]
    assert len(rows) == len(TEXTS)
    given = protos.Input()
    given.example_list_with_context.context.features.feature["text_pair"].bytes_list.value.append(b"What cat?")
    for row in rows:
        example = given.example_list_with_context.examples.add()
        example.features.feature["text"].bytes_list.value.append(row.inputs["text"].encode())
    texts = column(rows, "text"), column(rows, "text_pair")
    stub = exported.client._prediction
    if exported.task.kind == "classification":
        spec = protos.ModelSpec(name="bert", signature_name="classify")
        result = stub.Classify(protos.ClassificationRequest(model_spec=spec, input=given)).result
        found = [[(one.label, one.score) for one in row.classes] for row in result.classifications]
        assert [sorted(row, key=lambda one: -one[1]) for row in found] == exported.client.classify(*texts)
    else:
        spec = protos.ModelSpec(name="bert", signature_name="regress")
        result = stub.Regress(protos.RegressionRequest(model_spec=spec, input=given)).result
        assert [row.value for row in result.regressions] == exported.client.regress(*texts)


def test_example_signatures_have_their_method_names(exported):
    metadata = exported.client.metadata()
    methods = {name: signature.method_name.rpartition("/")[2] for name, signature in metadata.items()}
    special = {name: {"classify": "classify"} for name in ("classification", "multi_label")}
    special |= {"regression": {"regress": "regress"}}
    assert methods == dict.fromkeys(exported.signatures, "predict") | special.get(exported.task.kind, {})


@pytest.mark.parametrize("exported", ["multiple_choice"], indirect=True)
def test_choices(exported):
    assert exported.client.choose(["a cat", "the"], [["sat"], ["end"]]) == [(0, [1.0]), (0, [1.0])]
    uneven = [TaskRow("x", {"text": "a", "choices": ("b", "c")}), TaskRow("y", {"text": "a", "choices": ("b",)})]
    with pytest.raises(tf.errors.InvalidArgumentError, match="row 1 of the batch has fewer choices than another"):
        exported.signatures["evaluate"](examples=tf.constant(serialized(uneven)))
    with pytest.raises(ClientError, match="text 0 has no choices"):
        exported.client.choose(["a cat", "the"], [[], []])
    with pytest.raises(ClientError, match="rows differ in length"):
        exported.client.choose(["a", "b"], [["c"], ["d", "e"]])


@pytest.mark.parametrize("exported", ["tagging"], indirect=True)
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


@pytest.mark.parametrize("exported", ["tagging"], indirect=True)
def test_truncated_words_are_tagged_o(exported):
    # head_tail: of 22 places a quarter (6, 5.5 rounded up) is the head's.
    (words,) = exported.client.tag([" ".join(["the"] * 40)])
    assert len(words) == 40
    assert [i for i, word in enumerate(words) if word.score == 0] == list(range(6, 24))
    assert {word.tag for word in words[6:24]} == {"O"}


def test_served_precision_is_independent_of_training_also_for_ensembles(tokenizer, tmp_path):
    task = TASKS["classification"]
    keras.mixed_precision.set_dtype_policy("mixed_bfloat16")
    try:
        trained = [sharp(task, tokenizer, seed=seed) for seed in (1, 2)]
    finally:
        keras.mixed_precision.set_dtype_policy("float32")
    export_task_model(Ensemble(trained), task, SETTINGS, tokenizer, str(tmp_path))
    signatures = tf.saved_model.load(str(tmp_path)).signatures
    assert set(signatures) == {"serving_default", "evaluate", "classify"}
    rows = [TaskRow(str(i), of_row) for i, of_row in enumerate(made_up_inputs(task.kind))]
    members = [TrainedTask(sharp(task, tokenizer, seed=seed), task, SETTINGS, tokenizer) for seed in (1, 2)]
    logits = np.mean([member.outputs(rows, 64)[0] for member in members], axis=0)
    feeds = {name: tf.constant(column(rows, name)) for name in ("text", "text_pair")}
    scores = signatures["serving_default"](**feeds)["scores"]
    assert_equal_but_for_rounding(scores, softmax(logits), DEPTH, np.abs(logits).max())


@pytest.mark.slow
def test_lstms_are_exported_without_cudnn(tokenizer, tmp_path):
    task = TASKS["tagging"]
    settings = dataclasses.replace(SETTINGS, features="last", lstm_units=8)
    trained = TrainedTask(sharp(task, tokenizer, settings), task, settings, tokenizer)
    export_task_model(trained.model, task, settings, tokenizer, str(tmp_path))
    rows = [TaskRow(str(i), of_row) for i, of_row in enumerate(made_up_inputs(task.kind))]
    answers = trained.answers(rows, 64)
    assert len(set(itertools.chain(*answers))) == 3
    found = tf.saved_model.load(str(tmp_path)).signatures["evaluate"](examples=tf.constant(serialized(rows)))
    assert [parse_answer(task.kind, answer) for answer in found["answer"].numpy()] == answers
