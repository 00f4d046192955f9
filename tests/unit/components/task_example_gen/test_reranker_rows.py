"""Rows of `rerank`: tables of queries and passages, and splits that keep the passages of a query together."""

from collections import Counter

import pytest

from bert_keras.tasks.rows import TaskRow
from tests.support.examples.task_rows import rows, written
from tests.unit.components.task_example_gen.test_task_rows_generated import error, made, stored


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", "query\tpassage\tlabel\nwho?\tAnn\t2\n"),
        ("a.jsonl", '{"text": "who?", "text_pair": "Ann", "label": 2}\n'),
    ],
)
def test_a_table_of_queries_and_passages(tmp_path, name, content):
    path = written(tmp_path, name, content)
    assert rows("rerank", path) == [TaskRow("0", {"text": "who?", "text_pair": "Ann"}, ["who?", 2])]


def passages(folder, name, queries, relevant=1, first=0):
    """Five passages of each query, of which the first one is relevant; without the first rows."""
    lines = [f"query {q}\tpassage {p} of {q}\t{relevant if p == 0 else 0}\n" for q in queries for p in range(5)]
    return written(folder, name, "query\tpassage\tlabel\n" + "".join(lines[first:]))


def test_the_passages_of_a_query_stay_together(tmp_path):
    """Also those in two files; max_eval_rows takes whole queries."""
    files = [passages(tmp_path, "a.tsv", range(20)), passages(tmp_path, "b.tsv", range(10, 20))]
    spec = made("rerank", {"train": files}, tmp_path / "out", eval_fraction=0.3)
    queries = {split: Counter(row.gold[0] for row in stored(tmp_path / "out", split)) for split in ("train", "eval")}
    assert not {*queries["train"]} & {*queries["eval"]} and {*queries["eval"].values()} == {5, 10}
    assert spec.counts["train"] + spec.counts["eval"] == 150
    given = {"train": files[:1], "eval": [passages(tmp_path, "c.tsv", range(30, 40))]}
    assert made("rerank", given, tmp_path / "few", max_eval_rows=13).counts == {"train": 100, "eval": 10}
    assert {*Counter(row.gold[0] for row in stored(tmp_path / "few", "eval")).values()} == {5}
    assert made("rerank", given, tmp_path / "one", max_eval_rows=3).counts["eval"] == 5


def test_rows_that_rank_nothing_are_refused(tmp_path):
    train, none = passages(tmp_path, "a.tsv", range(4)), passages(tmp_path, "b.tsv", range(4), relevant=0)
    why = error("rerank", {"train": [none], "eval": [train]}, tmp_path / "x")
    assert "the training rows are all relevant, or all not" in why
    lacks = passages(tmp_path, "c.tsv", range(4), first=1)
    why = error("rerank", {"train": [train], "eval": [lacks]}, tmp_path / "x")
    assert "row 0 of the eval rows: no passage of its query is relevant, 'query 0'; give one with a label" in why
    empty = written(tmp_path, "empty.tsv", "query\tpassage\tlabel\n")
    assert "no rows to evaluate on" in error("rerank", {"train": [train], "eval": [empty]}, tmp_path / "x")
    one = passages(tmp_path, "d.tsv", [1])
    assert "all rows are one group" in error("rerank", {"train": [one]}, tmp_path / "x")
