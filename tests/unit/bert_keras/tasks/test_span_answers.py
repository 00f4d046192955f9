"""Answers, n-best lists and null odds from the logits of windows, compared with a slow reference."""

import json
import math
import os
import random
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.models.config import BertConfig
from bert_keras.tasks.answers import task_answers
from bert_keras.tasks.features import task_features
from bert_keras.tasks.objectives import span_objective
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.answers import n_best_predictions, span_answers
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.squad_reading import final_text, read, squad_rows, words_and_places

ONE, TWO = task_of("squad1.1"), task_of("squad2.0")
WORDS = ["who", "my", "dog", "(", ")", "in", "may", ".", "##s"]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], lower_case=True)
SETTINGS = TaskSettings(max_seq_length=12, max_query_length=2, doc_stride=4)
ROW = TaskRow("q", {"question": "Who?", "context": "My  (dogs) in May."})
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")

# [CLS] who [UNK] [SEP] my ( dog ##s ) in may [SEP]   /   [CLS] who [UNK] [SEP] ) in may . [SEP]
STARTS = [[1, 9, 0, 0, 0, 4, 5, 0, 0, 0, 0, 9], [0, 0, 0, 0, 0, 4, 4, 0, 0, 0, 0, 0]]
ENDS = [[2, 9, 0, 0, 0, 0, 0, 3, 1, 0, 0, 9], [1, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0]]


def answer(task, **settings):
    features = task_features([ROW], task, SETTINGS, TOKENIZER)
    assert features.arrays["input_ids"].shape == (2, 12)
    changed = TaskSettings(**{**vars(SETTINGS), **settings})
    outputs = {"start_logits": np.array(STARTS, "float32"), "end_logits": np.array(ENDS, "float32")}
    (one,) = span_answers(outputs, features, [ROW], task, changed)
    assert task_answers(outputs, features, [ROW], task, changed) == [one.text]
    return one


def test_an_answer_is_a_part_of_the_context():
    one = answer(ONE)
    assert (one.text, one.start, one.end) == ("dogs", 5, 9) and ROW.inputs["context"][5:9] == "dogs"
    assert one.score == 8 and one.null_score_difference == 1 - 8  # the least null score is the second window's
    # The question and special tokens have the best logits, and are no answers. The second window would start at "in" as
    # well as at "may", but shows more than the first around "may" alone.
    assert [candidate.text for candidate in one.n_best[:4]] == ["dogs", "(dogs", "May", "dogs)"]


def test_no_answer_above_the_threshold():
    assert answer(TWO, null_score_diff_threshold=-7.0).text == "dogs"
    none = answer(TWO, null_score_diff_threshold=-7.5)
    assert (none.text, none.start, none.end, none.score, none.null_score_difference) == ("", -1, -1, 8, -7)
    assert answer(ONE, null_score_diff_threshold=-7.5).text == "dogs"


def test_no_pair_of_positions_is_no_answer_with_logits_of_zero():
    for task in (ONE, TWO):
        one = answer(task, n_best_size=1)
        assert (one.text, one.start, one.score, one.null_score_difference) == ("", -1, 0, 1)
    (entry,) = n_best_predictions([ROW], [answer(ONE, n_best_size=1)])["q"]
    assert entry == {"text": "", "probability": 1.0, "start_logit": 0.0, "end_logit": 0.0}


def test_padding_changes_no_answer():
    """run_squad.py lets the logits of padding take places among the best."""
    rows = [ROW, TaskRow("r", {"question": "who", "context": "dog"})]
    features = task_features(rows, ONE, SETTINGS, TOKENIZER)
    logits = {name: np.where(features.arrays["input_mask"], 1.0, 9.0) for name in ("start_logits", "end_logits")}
    few = TaskSettings(**{**vars(SETTINGS), "n_best_size": 5})
    assert span_answers(logits, features, rows, ONE, few)[1].text == "dog"


def read_predictions(row, readings, logits, task, n_best_size, longest, lower_case):
    """run_squad.py's n-best list and null odds of a row; `logits` (starts, ends) by window."""
    found, nulls = [], []
    for number, (reading, (starts, ends)) in enumerate(zip(readings, logits, strict=True)):
        size = len(reading.tokens)
        starts, ends = starts[:size].tolist(), ends[:size].tolist()  # without padding
        best = [sorted(range(size), key=lambda i, x=x: x[i], reverse=True)[:n_best_size] for x in (starts, ends)]
        nulls.append((starts[0] + ends[0], starts[0], ends[0]))
        for start in best[0]:
            for end in best[1]:
                inside = start in reading.word_of and end in reading.word_of and reading.max_context[start]
                if inside and start <= end < start + longest:
                    found.append((starts[start] + ends[end], starts[start], ends[end], number, start, end))
    null = min(nulls, key=lambda one: one[0])
    entries = [*found, (*null, None, 0, 0)] if task.unanswerable else found
    words, _ = words_and_places(row.inputs["context"])
    n_best = []
    for _, start_logit, end_logit, number, start, end in sorted(entries, key=lambda one: one[0], reverse=True):
        if len(n_best) >= n_best_size:
            break
        text = ""
        if number is not None:
            reading = readings[number]
            part = words[reading.word_of[start] : reading.word_of[end] + 1]
            text = final_text(reading.tokens[start : end + 1], part, lower_case)
        if text not in [one[0] for one in n_best]:
            n_best.append((text, start_logit, end_logit))
    if task.unanswerable and "" not in [one[0] for one in n_best]:
        n_best.append(("", *null[1:]))
    total = sum(math.exp(start + end) for _, start, end in n_best)
    return [(text, math.exp(s + e) / total, s, e) for text, s, e in n_best], null[0] - max(one[0] for one in found)


@needs_data
@pytest.mark.parametrize("task", [ONE, TWO], ids=["1.1", "2.0"])
def test_n_best_lists_and_null_odds_equal_a_slow_reference(task):
    path = Path(os.environ["BERT_DATA_DIR"], "vocab/bert-base-uncased-vocab.txt")
    tokenizer = BertTokenizer.from_file(str(path), lower_case=True)
    # Without what the two ways to a text differ in: see test_texts_by_offsets_and_by_get_final_text.
    rows = [row for row in squad_rows("2.0") if row.inputs["context"].isascii()]
    rows = [row for row in rows if "  " not in row.inputs["context"] and "\n" not in row.inputs["context"]]
    rows = rows[:: len(rows) // 60][:60]
    settings = TaskSettings(max_seq_length=96, max_query_length=32, doc_stride=40, n_best_size=8, max_answer_length=10)
    features = task_features(rows, task, settings, tokenizer)
    rng = np.random.default_rng(0)
    shape = features.arrays["input_ids"].shape
    starts, ends = (rng.integers(-8, 8, shape).astype("float32") / 4 for _ in range(2))
    answers = span_answers({"start_logits": starts, "end_logits": ends}, features, rows, task, settings)
    lists = n_best_predictions(rows, answers)
    odds = {row.row_id: answer.null_score_difference for row, answer in zip(rows, answers, strict=True)}
    json.dumps([lists, odds], allow_nan=False)
    differing, number = 0, 0
    for row, one in zip(rows, answers, strict=True):
        readings = read(row, tokenizer.tokenize, 96, 40, 32)
        windows = slice(number, number + len(readings))
        number += len(readings)
        logits = list(zip(starts[windows], ends[windows], strict=True))
        n_best, difference = read_predictions(row, readings, logits, task, 8, 10, lower_case=True)
        assert odds[row.row_id] == difference
        assert one.text == ("" if task.unanswerable and difference > 0 else next(text for text, *_ in n_best if text))
        found = [(e["text"], e["start_logit"], e["end_logit"]) for e in lists[row.row_id]]
        differing += found != [(text, start, end) for text, _, start, end in n_best]
        if [text for text, *_ in found] == [text for text, *_ in n_best]:
            probabilities = [e["probability"] for e in lists[row.row_id]]
            np.testing.assert_allclose(probabilities, [p for _, p, _, _ in n_best], rtol=1e-12)
    assert differing == 0


@needs_data
@pytest.mark.parametrize(("cased", "random_differ", "beyond_spaces"), [(False, 34, 8), (True, 39, 9)])
def test_texts_by_offsets_and_by_get_final_text(cased, random_differ, beyond_spaces):
    """docs/decisions/0010: where the two ways to the text of a span differ, over all questions of SQuAD 1.1 here."""
    name = f"vocab/bert-base-{'cased' if cased else 'uncased'}-vocab.txt"
    tokenizer = BertTokenizer.from_file(str(Path(os.environ["BERT_DATA_DIR"], name)), lower_case=not cased)
    rows = squad_rows("1.1")
    features = task_features(rows, ONE, TaskSettings(max_seq_length=384), tokenizer)
    windows, first = features.windows, np.searchsorted(features.row_of, np.arange(len(rows)))
    held = np.flatnonzero(features.arrays["start_positions"])
    held = held[np.unique(features.row_of[held], return_index=True)[1]]  # a window of each row
    gold = [(w, *(int(features.arrays[f"{end}_positions"][w]) for end in ("start", "end"))) for w in held.tolist()]
    rng, drawn = random.Random(0), []
    for window in first.tolist():
        offset, last = int(windows.offset[window]), int(windows.offset[window] + windows.length[window]) - 1
        start = rng.randint(offset, last)
        drawn.append((window, start, min(last, start + rng.randrange(30))))

    def texts(window, start, end):
        context = rows[features.row_of[window]].inputs["context"]
        begin, behind = windows.characters(window, start, end)
        words, places = words_and_places(context)
        pieces = [tokenizer.vocabulary[i] for i in features.arrays["input_ids"][window, start : end + 1]]
        part = words[places[begin] : places[behind - 1] + 1]
        return context[begin:behind], final_text(pieces, part, tokenizer.normalization.lower_case)

    assert len(gold) == len(drawn) == 5_397
    pairs = [texts(*one) for one in gold]
    assert [pair for pair in pairs if pair[0] != pair[1]] == [
        (  # a piece that is [UNK]
            "the mortar and pestle and the ℞ (recipere) character",
            "the mortar and pestle and the ℞ (recipere) character,",
        ),
        (  # two spaces
            "if a complete list of primes up to  is known",
            "if a complete list of primes up to is known",
        ),
    ]
    differing = [pair for pair in (texts(*one) for one in drawn) if pair[0] != pair[1]]
    squeezed = [pair for pair in differing if " ".join(pair[0].split()) != pair[1]]
    assert (len(differing), len(squeezed)) == (random_differ, beyond_spaces)


def test_the_objective_by_hand():
    rng = np.random.default_rng(0)
    outputs = {name: rng.normal(size=(4, 7)).astype("float32") for name in ("start_logits", "end_logits")}
    batch = {
        "start_positions": np.array([0, 2, 3, 6]),
        "end_positions": outputs["end_logits"].argmax(1),
        "weights": np.array([1, 1, 0, 1], "float32"),
    }
    # By hand: the mean over start and end of -log softmax at the right position, over the rows that count.
    nll = [
        np.log(np.exp(outputs[f"{name}_logits"]).sum(1))
        - outputs[f"{name}_logits"][range(4), batch[f"{name}_positions"]]
        for name in ("start", "end")
    ]
    expected = (np.mean(nll, axis=0) * batch["weights"]).sum() / 3
    sums = {name: float(tf.reduce_sum(value)) for name, value in span_objective.example_sums(outputs, batch).items()}
    assert tuple(sums) == tuple(sorted(span_objective.sums, key=list(sums).index)) and sums["weight"] == 3
    loss = span_objective.loss(sums, span_objective.totals(batch))
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    metrics = span_objective.metrics(sums)
    assert list(metrics) == ["loss", "start_accuracy", "end_accuracy"] and metrics["end_accuracy"] == 1
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-6)
    hits = (outputs["start_logits"].argmax(1) == batch["start_positions"]) @ batch["weights"]
    assert metrics["start_accuracy"] == hits / 3


def test_a_model_learns_where_answers_are():
    rows = [
        TaskRow(str(i), {"question": "who", "context": "my dog in may"}, {"answers": [{"text": a, "answer_start": s}]})
        for i, (a, s) in enumerate([("dog", 3), ("dog", 3)])
    ]
    config = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 32, 0.0, 0.0, 16)
    model = task_type_of(ONE).create_model(config, ONE, SETTINGS, seed=0)
    model.build()
    features = task_features(rows, ONE, SETTINGS, TOKENIZER)
    batch = features.arrays

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            sums = span_objective.example_sums(model(batch, training=True), batch)
            sums = {name: tf.reduce_sum(value) for name, value in sums.items()}
            loss = span_objective.loss(sums, span_objective.totals(batch))
        variables = [weight.value for weight in model.trainable_weights]
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(0.3 * tf.convert_to_tensor(gradient))
        return loss

    loss = [step() for _ in range(40)][-1]
    assert loss < 0.2
    outputs = {name: np.asarray(values) for name, values in model(batch).items()}
    assert task_answers(outputs, features, rows, ONE, SETTINGS) == ["dog", "dog"]
