"""Prediction files: the official formats to the byte, round trips, and errors with name and line."""

import json
import os

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.submissions.prediction_files import official_name, read_predictions, write_predictions
from bert_keras.tasks.submissions.squad import read_null_odds, write_details
from bert_keras.tasks.table import TASKS, task_of

CHOICES = ("a", "b", "c", "d")
ROWS = {
    "classification": [TaskRow("0", {"text": "x"}), TaskRow("7", {"text": "y"})],
    "multi_label": [TaskRow("0", {"text": "x"}), TaskRow("7", {"text": "y"})],
    "regression": [TaskRow("0", {"text": "x"}), TaskRow("1", {"text": "y"}), TaskRow("2", {"text": "z"})],
    "ranking": [TaskRow("0", {"text": "x", "text_pair": "y"}), TaskRow("1", {"text": "x", "text_pair": "z"})],
    "multiple_choice": [TaskRow(n, {"text": "x", "choices": CHOICES}) for n in "01"],
    "span": [TaskRow(n, {"question": "?", "context": "."}) for n in ("56be", "56bf")],
    "tagging": [
        TaskRow("0", {"text": "EU 's Müller"}, ["B-ORG", "O", "B-PER"]),
        TaskRow("1", {"text": "yes"}, ["O"]),
    ],
}
FILES = {
    "cola": (["1", "0"], "index\tprediction\n0\t1\n7\t0\n"),
    "mnli": (["neutral", "entailment"], "index\tprediction\n0\tneutral\n7\tentailment\n"),
    "rte": (["entailment", "not_entailment"], "index\tprediction\n0\tentailment\n7\tnot_entailment\n"),
    "text": (['say "yes"', "a\tb"], 'index\tprediction\n0\t"say ""yes"""\n7\t"a\tb"\n'),
    "text-labels": ([["a b", "c"], []], "index\tprediction\n0\ta b|c\n7\t\n"),
    "sts-b": ([3.8115, -0.2, 5.4], "index\tprediction\n0\t3.812\n1\t0.000\n2\t5.000\n"),
    # Not rounded: two passages would be equal.
    "rerank": ([-0.12345678, 2.5], "index\tprediction\n0\t-0.12345678\n1\t2.5\n"),
    "swag": ([2, 0], ",pred\n0,2\n1,0\n"),
    "codah": ([3, 1], ",pred\n0,3\n1,1\n"),
    "squad1.1": (["in May", 'é"'], '{\n    "56be": "in May",\n    "56bf": "\\u00e9\\""\n}\n'),
    "squad2.0": (["", "in May"], '{\n    "56be": "",\n    "56bf": "in May"\n}\n'),
    "ner": (
        [["B-ORG", "I-ORG", "O"], ["B-x-y"]],
        "EU B-ORG B-ORG\n's O I-ORG\nMüller B-PER O\n\nyes O B-x-y\n\n",
    ),
}


def rows_of(name):
    return ROWS[task_of(name).kind]


def read(tmp_path, name, text):
    path = tmp_path / "given"
    path.write_bytes(text.encode())
    return read_predictions(task_of(name), rows_of(name), str(path))


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_written_and_read_back(name, tmp_path):
    answers, text = FILES[name]
    path = tmp_path / "out" / official_name(task_of(name))
    write_predictions(task_of(name), rows_of(name), answers, str(path))
    assert path.read_bytes().decode() == text
    assert os.listdir(path.parent) == [path.name]
    expected = [3.812, 0.0, 5.0] if name == "sts-b" else answers
    assert read_predictions(task_of(name), rows_of(name), str(path)) == expected


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("cola", "CoLA.tsv"),
        ("mnli", "MNLI-m.tsv"),
        ("sst-2", "SST-2.tsv"),
        ("sts-b", "STS-B.tsv"),
        ("imdb", "predictions.tsv"),
        ("swag", "predictions.csv"),
        ("squad2.0", "predictions.json"),
        ("ner", "predictions.txt"),
    ],
)
def test_file_names_are_those_of_the_leaderboards(name, file):
    assert official_name(task_of(name)) == file


def test_mnli_has_two_files_and_all_names_are_known():
    assert official_name(task_of("mnli"), "test_mismatched") == "MNLI-mm.tsv"
    glue = {official_name(task) for task in TASKS.values() if task.reader == "glue"}
    assert len(glue) == 9 and "predictions.tsv" not in glue, "reader `glue`: each task has a submission in GLUE_FILES"


def test_the_old_file_stays_if_the_new_one_cannot_be_written(tmp_path):
    path = tmp_path / "predictions.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="shorter"):
        write_predictions(task_of("ner"), ROWS["tagging"], [["O", "O", "O"], []], str(path))
    with pytest.raises(ValueError, match="2 rows and 1 answers"):
        write_predictions(task_of("ner"), ROWS["tagging"], [["O", "O", "O"]], str(path))
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["predictions.txt"]


def test_tags_without_gold_have_two_columns(tmp_path):
    rows = [TaskRow("0", {"text": "in Rome"})]
    write_predictions(task_of("ner"), rows, [["O", "B-LOC"]], str(tmp_path / "p"))
    assert (tmp_path / "p").read_text() == "in O\nRome B-LOC\n\n"
    assert read_predictions(task_of("ner"), rows, str(tmp_path / "p")) == [["O", "B-LOC"]]


def test_the_details_of_squad(tmp_path):
    n_best = [[{"text": "May", "probability": 1.0, "start_logit": 2.5, "end_logit": 3.0}], []]
    write_details(ROWS["span"], str(tmp_path), n_best, [-5.5, 2.0])
    assert json.loads((tmp_path / "nbest_predictions.json").read_text()) == {"56be": n_best[0], "56bf": []}
    assert read_null_odds(ROWS["span"], ["", ""], str(tmp_path / "null_odds.json")) == [-5.5, 2.0]
    write_details(ROWS["span"], str(tmp_path / "v1"), n_best)
    assert os.listdir(tmp_path / "v1") == ["nbest_predictions.json"]


@pytest.mark.parametrize(
    ("name", "text", "answers"),
    [
        # A BOM, CRLF, another order, an empty line at the end.
        ("cola", "\ufeffindex\tprediction\r\n7\t0\r\n0\t1\r\n\r\n", ["1", "0"]),
        ("sts-b", "index\tprediction\n0\t7.25\n1\t-1e-2\n2\t3", [7.25, -0.01, 3.0]),
        # An id that is not there, and one that no question has.
        ("squad1.1", '{"56bf": "x", "else": "y"}', [None, "x"]),
        # Tabs, other columns between, documents, empty lines, no end of line.
        (
            "ner",
            "-DOCSTART- -X- O\n\nEU\tNNP\tB-ORG\n's\tPOS\tO\nMü\rl\u2028ler\tNNP\tO\n\t\n\nyes\tUH\tO",
            [["B-ORG", "O", "O"], ["O"]],
        ),
        ("ner", "en:EU O\nen:'s O\nen:Mül\u00a0ler O\n\nen:yes O\n", [["O", "O", "O"], ["O"]]),
    ],
)
def test_files_of_other_programs_are_read(name, text, answers, tmp_path):
    assert read(tmp_path, name, text) == answers


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("cola", "0\t1\n7\t0\n", r"given:1: the header must be 'index\\tprediction'"),
        ("cola", "", r"given:1: the header must be"),
        ("cola", "index\tprediction\n0\t1\n7\t2\n", r"given:3: '2' is not a label; labels are 0, 1$"),
        ("text", "index\tprediction\n0\t\n", r"given:2: '' is not a label$"),
        ("text-labels", "index\tprediction\n0\ta||b\n", r"given:2: 'a\|\|b' is not a label$"),
        ("cola", "index\tprediction\n0\t1\n", r"given: no prediction for 1 of 2 rows, the first is index '7'"),
        ("cola", "index\tprediction\n0\t1\n3\t1\n", r"given:3: no row of the data has the index '3'"),
        ("cola", "index\tprediction\n0\t1\n0\t1\n", r"given:3: the index '0' occurs twice"),
        ("cola", "index\tprediction\n0\t1\t1\n", r"given:2: has 3 columns"),
        ("sts-b", "index\tprediction\n0\tnan\n", r"given:2: 'nan' is not a number"),
        ("sts-b", "index\tprediction\n0\thigh\n", r"given:2: 'high' is not a number"),
        ("swag", ",pred\n0,4\n", r"given:2: '4' is not a choice from 0 to 3"),
        ("swag", ",pred\n0,-1\n", r"given:2: '-1' is not a choice from 0 to 3"),
        ("swag", "pred\n2\n0\n", r"given:1: the header must be ',pred'"),
        ("squad1.1", '{"56be":\n "x"', r"given is not JSON: .*: line 2 "),
        ("squad1.1", "[]", r"given holds list, not a JSON object"),
        ("squad2.0", '{"56be": null}', r"given: 56be: null is not a text"),
        ("squad1.1", '{"a": "x"}', r"given: none of its 1 ids is a question of the data \(the first is 56be\)"),
        ("ner", "EU O\n's O\nMüller X\n\nyes O\n", r"given:3: 'X' is not a tag; tags are O, B-TYPE and I-TYPE"),
        ("ner", "EU O\n's O\n\nyes O\n", r"given:1: a sentence of 2 tags; in the data it has 3 words"),
        ("ner", "EU O\n's O\nMüller O\n\nno O\n", r"given:5: the word 'no' is 'yes' in the data"),
        ("ner", "EU O\n's O\nMüller O\n", r"given: 1 sentences; the data have 2"),
        ("ner", "EU\n's\n", r"given:1: has one column"),
    ],
)
def test_invalid_files_are_refused_with_name_and_line(name, text, why, tmp_path):
    with pytest.raises(InputError, match=why):
        read(tmp_path, name, text)


@pytest.mark.parametrize("name", ["cola", "squad1.1", "ner"])
def test_files_that_are_not_text_are_refused(name, tmp_path):
    (tmp_path / "given").write_bytes(b"index\tprediction\n\xff\xfe\n")
    with pytest.raises(InputError, match=r"given:? (cannot be parsed|is not UTF-8)"):
        read_predictions(task_of(name), rows_of(name), str(tmp_path / "given"))
    with pytest.raises(InputError, match="none: no such file"):
        read_predictions(task_of(name), rows_of(name), str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"56be": true}', "56be: true is not a number"),
        (b'{"56be": "1"}', '56be: "1" is not a number'),
        (b'{"56be": NaN}', "56be: NaN is not a number"),
        (b'{"56bf": 1}', "56be is missing, but has a prediction"),
        (b'{"\xff": 1}', "is not UTF-8"),
    ],
)
def test_null_odds_that_do_not_fit(content, why, tmp_path):
    (tmp_path / "odds").write_bytes(content)
    with pytest.raises(InputError, match=f"odds:? {why}"):
        read_null_odds(ROWS["span"], ["in May", None], str(tmp_path / "odds"))


def test_a_question_without_prediction_needs_no_null_odds(tmp_path):
    (tmp_path / "odds").write_text('{"56bf": 1}')
    assert read_null_odds(ROWS["span"], [None, "x"], str(tmp_path / "odds")) == [None, 1]


def test_duplicate_row_ids_are_refused(tmp_path):
    (tmp_path / "given").write_text("index\tprediction\n0\t1\n")
    with pytest.raises(InputError, match="two of the 2 rows to score have the same id"):
        read_predictions(task_of("cola"), [ROWS["classification"][0]] * 2, str(tmp_path / "given"))
