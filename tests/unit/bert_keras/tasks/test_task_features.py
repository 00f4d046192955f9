"""Arrays of rows, compared with tables made by hand."""

import numpy as np
import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.objectives import list_objective
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.sequences import head_room, truncate_pair
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task, task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *LETTERS, *(f"##{letter}" for letter in LETTERS), "."], True)
SHORT = {"[PAD]": "-", "[CLS]": "C", "[SEP]": "S"}
SINGLE = Task("single", "classification", "table", ("accuracy",), labels=("no", "yes"))
PAIR = Task("pair", "classification", "table", ("accuracy",), True, labels=("no", "yes"))
SEVERAL = Task("several", "multi_label", "table", ("micro_f1",), labels=("no", "so", "yes"))
NUMBER = Task("number", "regression", "table", ("pearson",), label_to=5.0)
CHOICE = Task("choice", "multiple_choice", "table", ("accuracy",))
TAGS = Task("tags", "tagging", "table", ("f1",), labels=("B", "I", "O"))


def features(task, rows, **settings):
    return task_type_of(task).features(rows, task, TaskSettings(**settings), TOKENIZER)


def singles(*texts, golds=None):
    golds = golds or [None] * len(texts)
    return [TaskRow(str(i), {"text": text}, gold) for i, (text, gold) in enumerate(zip(texts, golds, strict=True))]


def pairs(*texts):
    return [TaskRow(str(i), {"text": a, "text_pair": b}) for i, (a, b) in enumerate(texts)]


def spelt(ids):
    """Token ids as one character a token: "Cab-" is [CLS] a b [PAD]; a piece that continues a word is a capital."""
    tokens = [TOKENIZER.vocabulary[i] for i in ids]
    return "".join(SHORT.get(token, token[2:].upper() if token.startswith("##") else token) for token in tokens)


def table(arrays):
    names = ("input_ids", "input_mask", "segment_ids")
    assert all(arrays[name].dtype == np.int32 for name in names)
    return [
        (spelt(ids), "".join(map(str, mask)), "".join(map(str, segments)))
        for ids, mask, segments in zip(*(arrays[name] for name in names), strict=True)
    ]


def test_a_single_text():
    found = features(SINGLE, singles("a b", "", "ab c."))
    assert table(found.arrays) == [
        ("CabS--", "111100", "000000"),
        ("CS----", "110000", "000000"),
        ("CaBc.S", "111111", "000000"),
    ]
    assert found.row_of.tolist() == [0, 1, 2] and set(found.arrays) == {"input_ids", "input_mask", "segment_ids"}


@pytest.mark.parametrize(
    ("truncation", "expected"),
    [("head", "Ca b c d e f S"), ("tail", "Cc d e f g h S"), ("head_tail", "Ca b e f g h S")],
)
def test_truncation_follows_the_settings(truncation, expected):
    # Room for 6 of 8 pieces; a quarter of 6, to the nearest, halves up, is 2.
    found = features(SINGLE, singles("a b c d e f g h", "a b c d e f", "a"), max_seq_length=8, truncation=truncation)
    assert [spelt(ids) for ids in found.arrays["input_ids"]] == [expected.replace(" ", ""), "CabcdefS", "CaS-----"]


def test_head_tail_keeps_128_and_382_tokens():
    assert head_room(510, "head_tail") == 128  # arXiv 1905.05583: the first 128 and the last 382


def test_pairs():
    found = features(PAIR, pairs(("a b", "c"), ("", "d e"), ("a", "")))
    assert table(found.arrays) == [
        ("CabScS", "111111", "000011"),
        ("CSdeS-", "111110", "001110"),
        ("CaSS--", "111100", "000100"),
    ]


def pop_one_piece_at_a_time(a, b, budget):
    """The original's rule: the longer text loses its last token; on a tie B does."""
    while a + b > budget:
        a, b = (a - 1, b) if a > b else (a, b - 1)
    return a, b


def test_pairs_lose_one_token_at_a_time_from_the_end():
    found = features(PAIR, pairs(("a b c d", "e f g h"), ("a b c d e f", "g"), ("a", "b c d e f g")), max_seq_length=8)
    # Room for 5: of 4 and 4 pieces B loses one, A one, B one.
    assert [spelt(ids) for ids in found.arrays["input_ids"]] == ["CabcSefS", "CabcdSgS", "CaSbcdeS"]
    a, b = np.meshgrid(np.arange(20), np.arange(20))
    for budget in (5, 12, 13):
        kept = np.asarray(truncate_pair(a.ravel(), b.ravel(), budget)).T.tolist()
        expected = [pop_one_piece_at_a_time(*lengths, budget) for lengths in zip(a.ravel(), b.ravel(), strict=True)]
        assert kept == [list(map(int, lengths)) for lengths in expected]


def test_choices():
    rows = [
        TaskRow("0", {"text": "a", "choices": ("b", "c d")}, 1),
        TaskRow("1", {"text": "e f", "choices": ("", "g")}, 0),
    ]
    found = features(CHOICE, rows)
    assert found.arrays["input_ids"].shape == (2, 2, 6)
    flat = {name: array.reshape(4, 6) for name, array in found.arrays.items() if array.ndim == 3}
    assert table(flat) == [
        ("CaSbS-", "111110", "000110"),
        ("CaScdS", "111111", "000111"),
        ("CefSS-", "111110", "000010"),
        ("CefSgS", "111111", "000011"),
    ]
    assert found.arrays["labels"].tolist() == [1, 0] and found.arrays["weights"].tolist() == [1.0, 1.0]
    with pytest.raises(InputError, match="row 1 of choice has 1 choices, row 0 2; all must have the same number"):
        features(CHOICE, [rows[0], TaskRow("1", {"text": "a", "choices": ("b",)}, 0)])


def tagged(text, tags):
    return TaskRow("7", {"text": text}, tags.split())


def test_the_first_token_has_the_tag():
    found = features(TAGS, [tagged("ab c def", "B O I"), tagged("a", "I")])
    assert [spelt(ids) for ids in found.arrays["input_ids"]] == ["CaBcdEFS", "CaS-----"]
    assert found.arrays["token_labels"].tolist() == [[-1, 0, -1, 2, 1, -1, -1, -1], [-1, 1, -1, -1, -1, -1, -1, -1]]
    assert found.windows.tolist() == [[-1, 0, -1, 1, 2, -1, -1, -1], [-1, 0, -1, -1, -1, -1, -1, -1]]


@pytest.mark.parametrize(
    ("truncation", "ids", "labels"),
    [
        ("head", "CabCDeFS", [-1, 0, 1, -1, -1, 2, -1, -1]),
        # The second piece of "ef" has a tag nowhere: the first is cut off.
        ("tail", "CFghijkS", [-1, -1, 0, 1, 2, 0, 1, -1]),
        ("head_tail", "CabhijkS", [-1, 0, 1, 1, 2, 0, 1, -1]),
    ],
)
def test_words_without_a_first_token_have_no_tag(truncation, ids, labels):
    # The second word is a zero-width space, of which nothing is left.
    words, tags = ["a", "\u200b", "bcd", "ef", "g", "h", "i", "j", "k"], "B I I O B I O B I"
    found = features(TAGS, [tagged(" ".join(words), tags)], max_seq_length=8, truncation=truncation)
    assert spelt(found.arrays["input_ids"][0]) == ids
    assert found.arrays["token_labels"][0].tolist() == labels
    begins = {words[word][0].upper(): place for place, word in enumerate(found.windows[0]) if word >= 0}
    assert all(ids[place].upper() == letter for letter, place in begins.items())


def test_truncated_words_are_answered_o():
    rows = [tagged("ab \u200b c d e f g h", "B B B B B B B B"), tagged("a", "B")]
    found = features(TAGS, rows, max_seq_length=8)
    logits = np.zeros((*found.arrays["input_ids"].shape, 3), np.float32)
    logits[..., 1] = 1.0  # "I" everywhere
    answers = task_type_of(TAGS).answers(logits, found, rows, TAGS, TaskSettings(max_seq_length=8))
    assert answers == [["I", "O", "I", "I", "I", "I", "O", "O"], ["I"]]


def test_answers_have_the_form_of_golds():
    def answers(task, outputs):
        rows = singles(*"ab")
        return task_type_of(task).answers(np.array(outputs, np.float32), None, rows, task, TaskSettings())

    assert answers(SINGLE, [[0, 1], [1, 0]]) == ["yes", "no"]
    assert answers(NUMBER, [5.25, -1]) == [5.25, -1.0]  # as the model says, out of the range or not
    assert answers(CHOICE, [[0, 1, 0], [0, 0, 1]]) == [1, 2]


def test_labels():
    assert features(SINGLE, singles("a", "b", golds=["yes", "no"])).arrays["labels"].tolist() == [1, 0]
    labels = features(NUMBER, singles("a", "b", golds=[5, 0.5])).arrays["labels"]
    assert labels.dtype == np.float32 and labels.tolist() == [5.0, 0.5]  # not scaled


@pytest.mark.parametrize(
    ("task", "rows", "message"),
    [
        (SINGLE, singles("a", golds=["maybe"]), "row 0 of single has the label 'maybe'; it must be one of no, yes"),
        (NUMBER, singles("a", golds=["3"]), "row 0 of number has the gold '3'; it must be a number"),
        (NUMBER, singles("a", golds=[float("nan")]), "row 0 of number has the gold nan; it must be a number"),
        (SINGLE, singles("a", "b", golds=["no", None]), "row 1 has no gold, as 1 of the 2 rows of its split"),
        (CHOICE, [TaskRow("3", {"text": "a", "choices": ("b",)}, 1)], "row 3 .* has the gold 1; .* from 0 to 0"),
        (TAGS, [tagged("a b", "B")], "row 7 of tags has 2 words, but 1 tags; each word must have one"),
    ],
)
def test_invalid_golds_are_named(task, rows, message):
    with pytest.raises(InputError, match=message):
        features(task, rows)


def test_no_rows():
    for task in (SINGLE, PAIR, NUMBER, CHOICE, TAGS):
        found = features(task, [])
        assert len(found.row_of) == 0 and all(len(array) == 0 for array in found.arrays.values())


def test_several_labels_are_a_column_each():
    rows = singles("a", "b", "c", golds=[["yes", "no"], [], ["so"]])
    labels = features(SEVERAL, rows).arrays["labels"]
    assert labels.dtype == np.int32 and labels.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    with pytest.raises(InputError, match="row 0 of several has the label 'maybe'; it must be one of no, so, yes"):
        features(SEVERAL, singles("a", golds=[["no", "maybe"]]))
    answers = task_type_of(SEVERAL).answers(np.array([[-1, 0.0, 2], [-1, -2, -3]]), None, rows, SEVERAL, None)
    assert answers == [["so", "yes"], []]


def test_a_ranking_learns_which_passages_are_relevant():
    """Of three passages one of the grade 2 and one of the grade 1; loss by hand, as of logits 2, -1 and 0."""
    rows = [
        TaskRow(str(n), {"text": "a b", "text_pair": text}, ["a b", n]) for n, text in ((2, "c"), (0, "d e"), (1, ""))
    ]
    found = features(task_of("rerank"), rows)
    assert table(found.arrays)[0] == ("CabScS-", "1111110", "0000110")
    objective = task_type_of(task_of("rerank")).objective
    sums = objective.example_sums(np.array([2.0, -1.0, 0.0], np.float32), found.arrays)
    np.testing.assert_allclose(sums["nll"], [np.log1p(np.exp(-2)), np.log1p(np.exp(-1)), np.log(2)], rtol=1e-6)
    assert np.array(sums["correct"]).tolist() == [1, 1, 1]
    with pytest.raises(InputError, match=r"row 0 of rerank has the gold \['a', None\]; it must be a number"):
        features(task_of("rerank"), [TaskRow("0", {"text": "a", "text_pair": "b"}, ["a", None])])


def test_a_ranking_learns_from_lists():
    """Of five passages, with the others of a query once more where they are too few; a query without others is out."""
    given = [("a", "b", 1), ("a", "c", 0), ("e", "f", 1), ("a", "d", 0), ("a", "g", 2)]
    rows = [TaskRow(str(n), {"text": q, "text_pair": p}, [q, label]) for n, (q, p, label) in enumerate(given)]
    found = features(task_of("rerank"), rows, list_size=4)
    assert [[spelt(ids) for ids in of_one] for of_one in found.arrays["input_ids"]] == [
        ["CaSbS", "CaScS", "CaSdS", "CaScS"],
        ["CaSgS", "CaScS", "CaSdS", "CaScS"],
    ]
    logits = np.array([[0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 2.0]], np.float32)
    expected = np.log(4), np.log(np.exp(1) + 2 + np.exp(2)) - 1
    np.testing.assert_allclose(list_objective.example_sums(logits, found.arrays)["nll"], expected, rtol=1e-6)
    assert features(task_of("rerank"), pairs(("a", "b"), ("a", "c")), list_size=4).arrays["input_ids"].shape == (2, 5)
    with pytest.raises(InputError, match="no query has a relevant passage and another one"):
        features(task_of("rerank"), rows[2:3], list_size=4)
