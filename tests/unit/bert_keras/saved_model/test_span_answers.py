"""The graph's answers equal those from arrays: text, characters and scores."""

import dataclasses
import os
import random
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.task_models import BertForSpanExtraction
from bert_keras.saved_model import span_answers as served_spans
from bert_keras.saved_model.span_answers import SpanAnswers
from bert_keras.tasks.features import task_features
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.answers import span_answers
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.squad_reading import squad_rows

CHARS = "abcdefg.,'-éß漢\u1100\u1161\u11abσςα\u1b44\U0001d165\u302e\u02b0"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "ab", "##cd", *CHARS, *("##" + char for char in CHARS)], lower_case=True)
TASKS = {name: task_of(name) for name in ("squad1.1", "squad2.0")}
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


class Lookup:
    """A "model" that looks logits up by piece, position and neighbour: many are equal, and none is rounded."""

    weights = ()

    def __call__(self, inputs, training):
        assert not training
        ids = tf.cast(inputs["input_ids"], tf.int64)
        before = tf.pad(ids, [[0, 0], [1, 0]])[:, :-1]
        key = ids * 5 + before * 11 + tf.range(tf.shape(ids, tf.int64)[1]) * 3
        return {
            name: tf.cast(key * factor % 17, tf.float32) / 4 - tf.cast(ids == 0, tf.float32) * 9
            for name, factor in (("start_logits", 1), ("end_logits", 7))
        }


def offline(model, rows, task, task_settings, tokenizer):
    """The answers from arrays, all windows at once."""
    features = task_features(rows, task, task_settings, tokenizer)
    inputs = {name: features.arrays[name] for name in ("input_ids", "input_mask", "segment_ids")}
    outputs = {name: np.asarray(logits) for name, logits in model(inputs, training=False).items()}
    return span_answers(outputs, features, rows, task, task_settings), features


def assert_same(served, answers, rows, atol=0.0):
    for place, (one, row) in enumerate(zip(answers, rows, strict=True)):
        found = {name: values[place].numpy() for name, values in served.items()}
        assert found["answer"].decode() == one.text, row
        assert (found["start"], found["end"]) == (one.start, one.end)
        if one.text:
            assert row.inputs["context"][one.start : one.end] == one.text
    for name in ("score", "null_score_difference"):
        np.testing.assert_allclose(served[name], [getattr(one, name) for one in answers], rtol=0, atol=atol)


def ask(function, rows):
    texts = ([row.inputs[name].encode() for row in rows] for name in ("question", "context"))
    return function(*(tf.constant(list(values), tf.string) for values in texts))


def rows_of(pairs):
    return [TaskRow(str(i), {"question": q, "context": c}) for i, (q, c) in enumerate(pairs)]


any_text = st.one_of(
    st.text("abcdefgAÉ.,'-\u0301\u200d\u1b44\u302e\U0001d165 \n\u202f\xa0漢가İΣ\x00", max_size=60),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(["ab", "abcd", "a-b.", "漢", "x", "Éa"]), max_size=40).map(" ".join),
)


@pytest.mark.parametrize(
    ("task", "length", "query", "stride", "n_best", "longest"),
    [("squad2.0", 16, 6, 3, 4, 5), ("squad1.1", 40, 9, 12, 20, 30)],
)
def test_random_texts_have_the_same_answers(task, length, query, stride, n_best, longest):
    task_settings = TaskSettings(
        max_seq_length=length,
        max_query_length=query,
        doc_stride=stride,
        n_best_size=n_best,
        max_answer_length=longest,
        null_score_diff_threshold=0.5,
    )
    with mock.patch.object(served_spans, "SLICE_WINDOWS", 3):
        answers = SpanAnswers(Lookup(), TOKENIZER, task_settings, TASKS[task])

        def assert_same_as_offline(rows):
            expected, features = offline(Lookup(), rows, TASKS[task], task_settings, TOKENIZER)
            assert_same(ask(answers, rows), expected, rows)
            return expected, features

        @settings(max_examples=30, derandomize=True)
        @given(st.lists(st.tuples(any_text, any_text), max_size=5))
        def check(pairs):
            assert_same_as_offline(rows_of(pairs))

        check()
        rng = random.Random(0)
        letters = "abcdefgAÉ.,-\u0301\u200d漢가Σx  \n\u202f\xa0"
        texts = ["".join(rng.choices(letters, k=rng.randrange(80))) for _ in range(300)]
        expected, features = assert_same_as_offline(rows_of([(text[-20:], text) for text in texts]))
    assert np.bincount(features.row_of).max() >= 3
    answered = sum(one.text != "" for one in expected)
    assert 20 < answered < 280 if task == "squad2.0" else answered > 250


@needs_data
@pytest.mark.parametrize(("version", "length", "stride"), [("1.1", 96, 40), ("2.0", 192, 64)])
def test_200_real_questions_have_the_same_answers(random_bert, version, length, stride):
    path = Path(os.environ["BERT_DATA_DIR"], "vocab/bert-base-uncased-vocab.txt")
    tokenizer = BertTokenizer.from_file(str(path), lower_case=True)
    model = random_bert(BertConfig(len(tokenizer.vocabulary), 16, 1, 2, 32), BertForSpanExtraction)
    rows = squad_rows(version)
    rows = rows[:: len(rows) // 200][:200]
    task = TASKS[f"squad{version}"]
    task_settings = TaskSettings(max_seq_length=length, max_query_length=32, doc_stride=stride)
    differences = [one.null_score_difference for one in offline(model, rows, task, task_settings, tokenizer)[0]]
    task_settings = dataclasses.replace(task_settings, null_score_diff_threshold=float(np.median(differences)))
    expected, features = offline(model, rows, task, task_settings, tokenizer)
    assert_same(ask(SpanAnswers(model, tokenizer, task_settings, task), rows), expected, rows, atol=1e-5)
    assert np.bincount(features.row_of).max() >= 4
    assert sum(one.text != "" for one in expected) == (100 if version == "2.0" else 200)


def test_no_questions_and_empty_contexts():
    task_settings = TaskSettings(max_seq_length=20, max_query_length=6)
    answers = SpanAnswers(Lookup(), TOKENIZER, task_settings, TASKS["squad1.1"])
    assert {name: len(values) for name, values in ask(answers, []).items()} == dict.fromkeys(
        ("answer", "score", "null_score_difference", "start", "end"), 0
    )
    found = ask(answers, rows_of([("a", ""), ("a", " \n")]))
    assert found["answer"].numpy().tolist() == [b"", b""] and found["start"].numpy().tolist() == [-1, -1]
    assert found["end"].numpy().tolist() == [-1, -1] and found["score"].numpy().tolist() == [0, 0]
    with pytest.raises(tf.errors.InvalidArgumentError, match="as many contexts"):
        answers(tf.constant(["a"]), tf.constant(["a", "b"]))


def test_slices_are_as_short_as_possible():
    shapes = []

    class Seen(Lookup):
        def __call__(self, inputs, training):
            shape = tf.shape(inputs["input_ids"])
            tf.numpy_function(lambda shape: shapes.append(tuple(shape)), [shape], [])
            return super().__call__(inputs, training)

    answers = SpanAnswers(Seen(), TOKENIZER, TaskSettings(max_seq_length=20, max_query_length=6), TASKS["squad1.1"])
    ask(answers, rows_of([("a", "b c")] * 3 + [("a b", "a b " * 200)]))
    # 3 short ones, and 400 pieces in windows of 15.
    assert shapes == [(16, 20), (14, 20)]
    shapes.clear()
    ask(answers, rows_of([("a", "b c"), ("a", "b")]))
    assert shapes == [(2, 6)]


def test_settings_without_room_are_refused():
    with pytest.raises(InputError, match="no room for a context"):
        SpanAnswers(Lookup(), TOKENIZER, TaskSettings(max_seq_length=64), TASKS["squad1.1"])
