"""`bert-tfx hard-negatives`: near passages without a label become negatives."""

import json

import numpy as np
import pytest

from tests.support.pipeline.command_line import bert_tfx, refusal

# Passages by their cosine with both queries, from the nearest; lengths differ.
COSINES = {"p0": 0.99, "p1": 0.9, "p2": 0.8, "p3": 0.7, "p4": 0.6, "p5": 0.5}


def vectors(folder, rows):
    folder.mkdir()
    lines = [json.dumps({"text": text, "embedding": vector, "num_tokens": 3}) + "\n" for text, vector in rows.items()]
    (folder / "answers-00000-of-00002.jsonl").write_text("".join(lines[:1]))
    (folder / "answers-00001-of-00002.jsonl").write_text("".join(lines[1:]))
    return folder


@pytest.fixture
def mine(tmp_path):
    queries = vectors(tmp_path / "queries", {"a": [2.0, 0.0], "b": [0.5, 0.0]})
    passages = {text: [3 * x, 3 * float(np.sqrt(1 - x * x))] for text, x in COSINES.items()}
    passages = vectors(tmp_path / "passages", passages)
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("query\tpassage\tlabel\na\tp1\t1\na\tp3\t0\nb\tp0\t2\n")

    def mine(*options):
        output = tmp_path / "rows.jsonl"
        given = "hard-negatives", pairs, "--queries", queries, "--passages", passages, "--output", output
        code, told, err = bert_tfx(*given, *options)
        assert code == 0, err
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        assert told == f"{output}: {len(rows):,} rows of 2 queries\n"
        return rows

    return mine


def mined(rows, query):
    return {row["passage"]: row["label"] for row in rows if row["query"] == query}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--number", 2, "--within", 2), ["p0", "p2"]),
        (("--number", 2, "--skip", 1, "--within", 3), ["p2", "p4"]),
        (("--number", 9, "--max-score", 0.65), ["p4", "p5"]),
        (("--number", 9, "--max-score", 0.95, "--within", 2), ["p2"]),
    ],
)
def test_the_nearest_passages_without_a_label_are_negatives(mine, options, expected):
    """Of the query a, whose labelled passages p1 and p3 keep their labels."""
    assert mined(mine(*options), "a") == {"p1": 1, "p3": 0, **dict.fromkeys(expected, 0)}


def test_negatives_are_drawn_by_a_seed(mine):
    first, again, *others = (mine("--number", 2, "--seed", seed) for seed in (1, 1, 2, 3, 4))
    assert again == first and any(rows != first for rows in others)
    assert {len(mined(rows, "b")) for rows in others} == {3} and {mined(rows, "b")["p0"] for rows in others} == {2}


def test_rows_for_vectors(mine):
    """A row of each relevant passage, p3 of a is none; the others' copies would be pushed away."""
    rows = mine("--number", 1, "--within", 1, "--triplets")
    assert rows == [
        {"text": "a", "text_pair": "p1", "negative": "p0"},
        {"text": "b", "text_pair": "p0", "negative": "p1"},
    ]


def test_each_relevant_passage_has_a_negative_of_its_own(mine, tmp_path):
    (tmp_path / "pairs.tsv").write_text("query\tpassage\tlabel\na\tp1\t1\na\tp3\t2\na\tp0\t1\nb\tp0\t0\n")
    rows = mine("--number", 2, "--within", 2, "--triplets")
    assert [(row["text_pair"], row["negative"]) for row in rows] == [("p1", "p2"), ("p3", "p4"), ("p0", "p2")]


def test_a_query_is_no_negative_of_its_own(mine, tmp_path):
    (tmp_path / "queries/answers-00000-of-00002.jsonl").write_text('{"text": "p2", "embedding": [1.0, 0.0]}\n')
    (tmp_path / "pairs.tsv").write_text("query\tpassage\np2\tp1\nb\tp0\n")
    assert mined(mine("--number", 2, "--within", 2), "p2") == {"p1": 1, "p0": 0, "p3": 0}


def test_answers_that_do_not_fit_are_refused(tmp_path):
    folder, none = vectors(tmp_path / "queries", {"a": [1.0], "c": [1.0]}), tmp_path / "none"
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"query": "a", "passage": "p"}\n{"query": "b", "passage": "p"}\n')
    given = "hard-negatives", pairs, "--output", tmp_path / "rows.jsonl", "--passages", folder, "--queries"
    assert f"{folder}: lacks 1 queries, such as 'b'; apply to {pairs}" in refusal(*given, folder)
    assert f"{none}: has no answers; give an --output of `bert-tfx apply`" in refusal(*given, none)
    (folder / "answers-00000-of-00002.jsonl").write_text('{"embedding": [1.0]}\n')
    assert "has no text or no embedding; apply --signature embed --keep text=COLUMN" in refusal(*given, folder)
