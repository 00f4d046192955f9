"""The windows of run_squad.py: by example, and compared with a slow reference."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.features import answer_words, span_features
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.squad_reading import read, squad_rows

WORDS = [
    "who",
    "wrote",
    "it",
    "?",
    "my",
    "dog",
    ",",
    "in",
    "may",
    ".",
    "(",
    "1895",
    "-",
    "1943",
    ")",
    *"abcdef",
    "##ed",
]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], lower_case=True)
needs_data = pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")


def row(question, context, answer=None, start=None, row_id="q"):
    inputs = {"question": question, "context": context}
    if answer is None:
        return TaskRow(row_id, inputs, {"answers": []})
    start = context.index(answer) if start is None else start
    return TaskRow(row_id, inputs, {"answers": [{"text": answer, "answer_start": start}]})


def sizes(length, stride, query=64):
    return TaskSettings(max_seq_length=length, doc_stride=stride, max_query_length=query)


def tokens(features, tokenizer=TOKENIZER):
    return [" ".join(tokenizer.vocabulary[i] for i in ids) for ids in features.arrays["input_ids"]]


def test_windows_by_example():
    features = span_features(
        [row("Who wrote it?", "My dog wrote it, in May .", "in May")], sizes(13, 3, query=5), TOKENIZER
    )
    assert tokens(features) == [
        "[CLS] who wrote it ? [SEP] my dog wrote it , in [SEP]",
        "[CLS] who wrote it ? [SEP] it , in may . [SEP] [PAD]",
    ]
    arrays = features.arrays
    assert arrays["start_positions"].tolist() == [0, 8] and arrays["end_positions"].tolist() == [0, 9]
    assert arrays["segment_ids"].tolist() == [[0] * 6 + [1] * 7, [0] * 6 + [1] * 6 + [0]]
    assert arrays["input_mask"].tolist() == [[1] * 13, [1] * 12 + [0]]
    assert arrays["weights"].tolist() == [1.0, 1.0] and features.row_of.tolist() == [0, 0]
    assert {array.dtype.name for array in arrays.values()} == {"int32", "float32"}
    # Of "," either window shows one piece on its shorter side: the longer window is the first.
    shown = features.windows.is_max_context(13)
    found = [" ".join(np.array(text.split())[mask]) for text, mask in zip(tokens(features), shown, strict=True)]
    assert found == ["my dog wrote it ,", "in may ."]
    assert features.windows.characters(1, 8, 9) == (17, 23)


def test_start_and_end_positions():
    context = "( 1895 - 1943 ) my (1895-1943) a\u202fb c"
    rows = [
        row("a", context, "1895", 20),  # snapped to the pieces, of the word "(1895-1943)"
        row("b", context, "1895-194", 20),  # no run of pieces: the whole word
        row("c", context, "b"),  # U+202F is white space
        row("d", context),  # unanswerable
        row("e", context, "my", 3, "lost"),  # not there
        row("f", context, "c", 500, "outside"),
    ]
    features = span_features(rows, sizes(40, 20, query=5), TOKENIZER)
    spans = zip(*(features.arrays[f"{end}_positions"].tolist() for end in ("start", "end")), strict=True)
    assert [" ".join(text.split()[s : e + 1]) for text, (s, e) in zip(tokens(features), spans, strict=True)] == [
        "1895", "( 1895 - 1943 )", "b", "[CLS]", "[CLS]", "[CLS]"
    ]  # fmt: skip
    assert features.arrays["start_positions"].tolist()[0] == 10
    # Left out of training, not of the answers.
    assert features.arrays["weights"].tolist() == [1, 1, 1, 1, 0, 0]
    assert features.windows.not_recovered == ("lost", "outside")


def test_answers_not_recovered_are_told(capsys):
    span_features([row("a", "a b", "c", 0, "56be"), row("a", "a b", "b")], sizes(40, 20, query=5), TOKENIZER)
    assert capsys.readouterr().err == (
        "bert-tfx: 1 of 2 rows are left out of the loss: their first answer is not in the context at its answer_start "
        "(the first: 56be)\n"
    )


def test_rows_without_golds_have_no_labels():
    unknown = TaskRow("q", {"question": "who ?", "context": "a b"})
    assert set(span_features([unknown], sizes(40, 20, 5), TOKENIZER).arrays) == {
        "input_ids", "input_mask", "segment_ids"
    }  # fmt: skip


def test_empty_questions_and_contexts_have_a_window():
    features = span_features([row("", ""), row("who", " "), row("", "a")], sizes(40, 20, 5), TOKENIZER)
    assert tokens(features) == ["[CLS] [SEP] [SEP] [PAD]", "[CLS] who [SEP] [SEP]", "[CLS] [SEP] a [SEP]"]
    assert not features.windows.in_document(4)[:2].any()
    assert span_features([], sizes(40, 20, 5), TOKENIZER).arrays["input_ids"].shape == (0, 1)


def test_settings_without_room_for_a_context_are_refused():
    with pytest.raises(InputError, match=r"max_seq_length=67 has no room .*more than 67"):
        span_features([], sizes(67, 20), TOKENIZER)
    span_features([row("a " * 100, "b")], sizes(68, 20), TOKENIZER)


def test_words_of_an_answer():
    context = " a\u202fbc  (de) "
    assert answer_words(context, "b", 3) == (3, 5)
    assert answer_words(context, "bc  (d", 3) == (3, 11)
    assert answer_words(context, " (de", 6) == (3, 11)  # begins behind "bc"
    assert answer_words(context, " a", 0) is None  # nothing before
    assert answer_words(context, "x", 3) is None and answer_words(context, "", 3) is None
    assert answer_words(context, "a", -1) is None and answer_words(context, " x", 12) is None


def assert_equals_reading(rows, task_settings, tokenizer, tokenize):
    """Every array, and where each piece is max context."""
    features = span_features(rows, task_settings, tokenizer)
    arrays, windows = features.arrays, features.windows
    length = arrays["input_ids"].shape[1]
    in_document, is_max = windows.in_document(length), windows.is_max_context(length)
    number = 0
    for index, one in enumerate(rows):
        expected = read(
            one, tokenize, task_settings.max_seq_length, task_settings.doc_stride, task_settings.max_query_length
        )
        for reading in expected:
            ids, mask = arrays["input_ids"][number], arrays["input_mask"][number]
            assert [tokenizer.vocabulary[i] for i in ids[mask == 1]] == reading.tokens
            assert not ids[mask == 0].any() and features.row_of[number] == index
            context = np.flatnonzero(in_document[number]).tolist()
            assert context == list(reading.word_of)
            assert np.flatnonzero(is_max[number]).tolist() == [p for p, yes in reading.max_context.items() if yes]
            ones = np.zeros(length, int)
            ones[reading.tokens.index("[SEP]") + 1 : len(reading.tokens)] = 1
            assert arrays["segment_ids"][number].tolist() == ones.tolist()
            labels = arrays["start_positions"][number], arrays["end_positions"][number]
            assert labels == ((reading.start or 0), (reading.end or 0))
            assert arrays["weights"][number] == (reading.start is not None)
            number += 1
    assert number == len(ids_of(arrays))
    return features


def ids_of(arrays):
    return arrays["input_ids"]


text = st.lists(st.sampled_from([*WORDS[:-1], "(1895-1943)", "aed", "\u202f", "\t", "\u200d", "x"]), max_size=30)
spaced = st.builds(lambda words, sep: sep.join(words), text, st.sampled_from([" ", "", "  "]))


@st.composite
def random_rows(draw):
    context = draw(spaced)
    answer = None
    if context and draw(st.booleans()):
        start = draw(st.integers(0, len(context) - 1))
        answer = context[start : draw(st.integers(start + 1, len(context)))]
        start = draw(st.sampled_from([start, start, start, 0]))
        return row(draw(spaced), context, answer, start)
    return row(draw(spaced), context)


def test_random_rows_equal_a_slow_reference():
    @settings(max_examples=300, derandomize=True)
    @given(st.lists(random_rows(), max_size=3), st.integers(1, 12), st.integers(1, 8), st.integers(1, 12))
    def check(rows, room, query, stride):
        length = max(8, query + 3 + room)
        assert_equals_reading(rows, sizes(length, stride, query), TOKENIZER, TOKENIZER.tokenize)

    check()


@needs_data
@pytest.mark.parametrize(("version", "length", "stride"), [("1.1", 384, 128), ("2.0", 128, 50)])
def test_real_questions_equal_a_slow_reference(version, length, stride):
    path = Path(os.environ["BERT_DATA_DIR"], "vocab/bert-base-uncased-vocab.txt")
    tokenizer = BertTokenizer.from_file(str(path), lower_case=True)
    rows = squad_rows(version)[::12]
    tokenize = functools.cache(tokenizer.tokenize)
    features = assert_equals_reading(rows, sizes(length, stride), tokenizer, tokenize)
    assert len(features.row_of) > len(rows)
    assert features.windows.not_recovered == ()
