"""Shards of rows from files: splits, labels, samples, task_spec.json, and the component."""

import dataclasses
import json
from collections import Counter
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given
from pydantic import TypeAdapter
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import decode_split_names

from bert_keras.data.tfrecord import bytes_example, read_records
from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow, read_rows
from bert_keras.tasks.settings import TaskSpec
from bert_keras.tasks.table import TASKS
from components.corpus_gen.inputs import fingerprint
from components.io.shards import shard_paths
from components.task_example_gen import generate, readers
from components.task_example_gen.component import Executor, TaskExampleGen
from components.task_example_gen.generate import generate_rows
from components.task_example_gen.readers import LocatedRow, ReadReport, read_located
from components.task_example_gen.settings import Columns, TaskDataSettings
from components.task_example_gen.split_files import input_files
from components.task_example_gen.splits import hold_out, sample
from tests.support.examples.task_rows import MEND, written


def table(folder, name, labels, start=0):
    path = folder / name
    path.write_text("text\tlabel\n" + "".join(f"row {i}\t{label}\n" for i, label in enumerate(labels, start)))
    return str(path)


def stored(folder, split):
    records = []
    for path in shard_paths(f"{folder}/Split-{split}"):
        with open(path, "rb") as file:
            records += read_records(file)
    return list(read_rows(records))


def made(task, files, folder, **settings):
    return generate_rows(TASKS[task], files, TaskDataSettings(**settings), str(folder))


def error(task, files, folder, **settings):
    with pytest.raises(InputError) as caught:
        made(task, files, folder, **settings)
    return str(caught.value)


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
GOLD = st.one_of(
    st.none(),
    TEXT,
    st.integers(0, 3),
    st.floats(0, 5),
    st.lists(TEXT),
    st.builds(lambda text, start: {"answers": [{"text": text, "answer_start": start}]}, TEXT, st.integers(0)),
)


@given(TEXT, st.dictionaries(st.sampled_from(["text", "text_pair", "question", "context"]), TEXT), GOLD, st.lists(TEXT))
def test_stored_rows_are_read_back(row_id, inputs, gold, choices):
    row = TaskRow(row_id, inputs | ({"choices": tuple(choices)} if choices else {}), gold)
    assert list(read_rows([bytes_example({**row.to_features()})])) == [row]


def test_splits_labels_and_specification(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "ROWS_PER_SHARD", 4)
    files = {
        "train": [table(tmp_path, "train.tsv", "bbaabb"), table(tmp_path, "more.tsv", "cab", 6)],
        "eval": [table(tmp_path, "dev.tsv", "ab", 20)],
        "test": [table(tmp_path, "test.tsv", ["c", "a", ""], 30)],
    }
    spec = made("text", files, tmp_path / "out", on_bad_row="skip")
    assert spec.task.labels == ("a", "b", "c")
    assert spec.counts == {"train": 9, "eval": 2, "test": 2} and spec.held_out == ""
    assert spec.skipped == {files["test"][0]: 1}
    assert TaskSpec.load(str(tmp_path / "out")) == spec
    assert [row.inputs["text"] for row in stored(tmp_path / "out", "train")] == [f"row {i}" for i in range(9)]
    assert [(row.row_id, row.gold) for row in stored(tmp_path / "out", "eval")] == [("0", "a"), ("1", "b")]
    names = sorted(path.name for path in (tmp_path / "out/Split-train").iterdir())
    assert names == [f"examples-0000{index}-of-00003.tfrecord" for index in range(3)]


def test_labels_of_rows_with_several(tmp_path):
    files = {"train": [table(tmp_path, "train.tsv", ["b|a", "", "c"])], "eval": [table(tmp_path, "dev.tsv", ["c|a"])]}
    assert made("text-labels", files, tmp_path / "out").task.labels == ("a", "b", "c")
    assert [row.gold for row in stored(tmp_path / "out", "train")] == [["a", "b"], [], ["c"]]
    with pytest.raises(InputError, match="line 2: label 'd' is not one of a, b, c"):
        made("text-labels", {**files, "eval": [table(tmp_path, "dev.tsv", ["c|d"])]}, tmp_path / "again")


def test_the_same_inputs_give_the_same_bytes(tmp_path):
    def content(folder):
        files = {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}
        return {name: data for name, data in files.items() if ".part" not in name.as_posix()}

    files = {"train": [table(tmp_path, "train.tsv", "ab" * 40)]}
    made("text", files, tmp_path / "one", max_train_rows=30)
    made("text", files, tmp_path / "two", max_train_rows=30)
    made("text", files, tmp_path / "three", max_train_rows=30, seed=1)
    assert content(tmp_path / "one") == content(tmp_path / "two") != content(tmp_path / "three")
    assert len(content(tmp_path / "one")) == 3


def test_rows_are_held_out_without_an_eval_file(tmp_path):
    files = {"train": [table(tmp_path, "train.tsv", "ab" * 50)]}
    spec = made("text", files, tmp_path / "out", eval_fraction=0.2, max_eval_rows=15, max_train_rows=30)
    assert spec.counts == {"train": 30, "eval": 15} and TaskSpec.load(str(tmp_path / "out")) == spec
    assert spec.held_out == "0.2 by seed 0"
    train, held_out = (stored(tmp_path / "out", split) for split in ("train", "eval"))
    assert not {row.row_id for row in train} & {row.row_id for row in held_out}
    # In the order of the file, and from all of it.
    assert [int(row.row_id) for row in train] == sorted(int(row.row_id) for row in train)
    assert int(train[-1].row_id) > 80


def rows_of_groups(groups):
    return [("f", LocatedRow("", TaskRow(str(i), {"text": f"{i}"}, "a"), group)) for i, group in enumerate(groups)]


def test_groups_are_not_split():
    train, held_out = hold_out(rows_of_groups("aaabbbcccdddeee"), 0.3, seed=0)
    sides = [{int(row.row_id) // 3 for row in side} for side in (train, held_out)]
    # The first two articles have at least a share of 0.3 of the 15 rows.
    assert (len(train), len(held_out)) == (9, 6) and not sides[0] & sides[1]
    chosen = {
        tuple(row.row_id for row in hold_out(rows_of_groups("aaabbbcccdddeee"), 0.3, seed)[1]) for seed in range(9)
    }
    assert len(chosen) > 3


def test_rows_with_the_same_text_stay_together():
    rows = [("f", LocatedRow("", TaskRow(str(i), {"text": f"{i // 2}"}, "a"))) for i in range(40)]
    train, held_out = hold_out(rows, 0.25, seed=0)
    assert len(held_out) == 10
    assert not {row.inputs["text"] for row in train} & {row.inputs["text"] for row in held_out}


def test_pairs_of_one_query_stay_together(tmp_path):
    lines = [json.dumps({"text": f"query {i // 4}", "text_pair": f"answer {i}"}) + "\n" for i in range(40)]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    spec = made("sentence-retrieval", {"train": [f"{tmp_path}/pairs.jsonl"]}, tmp_path / "out", eval_fraction=0.25)
    assert spec.counts == {"train": 28, "eval": 12} and spec.held_out == "0.25 by seed 0, whole queries"
    train, held_out = ({row.inputs["text"] for row in stored(tmp_path / "out", split)} for split in ("train", "eval"))
    assert not train & held_out


def test_unlabelled_rows_that_are_eval_rows_are_left_out(tmp_path, capsys):
    """A teacher would answer them, and the gate compares the student with it on them."""
    pool = table(tmp_path, "pool.tsv", "a" * 8, 10)
    files = {"train": [table(tmp_path, "train.tsv", "abab")], "eval": [table(tmp_path, "dev.tsv", "abab", 2)]}
    assert made("text", {**files, "unlabelled": [pool]}, tmp_path / "none").counts["unlabelled"] == 8
    assert capsys.readouterr().err == "bert-tfx: 2 train rows are eval rows, too\n"
    pool = table(tmp_path, "pool.tsv", "a" * 4, 4)
    spec = made("text", {**files, "unlabelled": [pool]}, tmp_path / "some")
    assert spec.counts == {"train": 4, "eval": 4, "unlabelled": 2}
    assert [row.inputs["text"] for row in stored(tmp_path / "some", "unlabelled")] == ["row 6", "row 7"]
    assert "bert-tfx: 2 unlabelled rows are eval rows, too: left out\n" in capsys.readouterr().err
    pool = table(tmp_path, "pool.tsv", "a" * 2, 4)
    assert made("text", {**files, "unlabelled": [pool]}, tmp_path / "all").counts == {"train": 4, "eval": 4}


def test_a_single_group_cannot_be_held_out():
    with pytest.raises(InputError) as caught:
        hold_out(rows_of_groups("aaa"), 0.3, seed=0)
    assert str(caught.value) == (
        "f: all rows are one group (article, document, video, or the same text), which cannot be split; "
        "give --eval FILE"
    )
    # However large the share is, one group is left for training.
    assert len(hold_out(rows_of_groups("ab"), 0.99, seed=0)[0]) == 1


def test_a_sample_is_seeded_and_uniform():
    rows = list(range(20))
    assert sample(rows, 0, seed=0) == sample(rows, 20, seed=0) == rows
    counts = Counter(row for seed in range(400) for row in sample(rows, 5, seed))
    # 100 each, with a deviation of sqrt(400 * 1/4 * 3/4) = 8.7.
    assert len(counts) == 20 and all(60 < count < 140 for count in counts.values())
    assert sample(rows, 5, seed=3) == sample(rows, 5, seed=3) == sorted(sample(rows, 5, seed=3))


def test_every_entity_type_has_b_and_i_tags(tmp_path):
    (tmp_path / "train.txt").write_text("EU\tI-ORG\n\nBonn\tB-LOC\nis\tO\n")
    (tmp_path / "valid.txt").write_text("A\tB-LOC\nB\tI-LOC\n")
    files = {"train": [f"{tmp_path}/train.txt"], "eval": [f"{tmp_path}/valid.txt"]}
    spec = made("ner", files, tmp_path / "out")
    assert spec.task.labels == ("B-LOC", "B-ORG", "I-LOC", "I-ORG", "O")


def test_errors_for_unusable_files(tmp_path):
    train = table(tmp_path, "train.tsv", "abab")
    dev = table(tmp_path, "dev.tsv", "ac")
    assert error("text", {"train": [train], "eval": [dev]}, tmp_path) == (
        f"{dev}, line 3: label 'c' is not one of a, b; correct it, or skip such rows with --set data.on_bad_row=skip"
    )
    empty = table(tmp_path, "empty.tsv", "")
    assert error("text", {"train": [empty]}, tmp_path) == (
        f"{empty}: no rows to train on (0 malformed rows skipped); give a file of text with rows"
    )
    (tmp_path / "unlabelled.tsv").write_text("text\nfine\ngood\n")
    unlabelled = f"{tmp_path}/unlabelled.tsv"
    empty_labels = table(tmp_path, "empty_labels.tsv", "  ")
    assert error("text", {"train": [train], "eval": [empty_labels]}, tmp_path, on_bad_row="skip") == (
        f"{empty_labels}: no rows to evaluate on (2 malformed rows skipped); give a file of text with rows"
    )
    same = table(tmp_path, "same.tsv", "aa")
    assert error("text", {"train": [same]}, tmp_path) == (
        f"{same}: the only labels are ['a']; give rows of two labels or more"
    )
    # A test set need not have labels.
    spec = made("text", {"train": [train], "test": [unlabelled]}, tmp_path / "out")
    assert spec.counts == {"train": 3, "eval": 1, "test": 2}
    assert [row.gold for row in stored(tmp_path / "out", "test")] == [None, None]


def test_rows_depend_only_on_the_properties(tmp_path):
    files = {"train": [table(tmp_path, "train.tsv", "ab" * 10)]}

    def properties(settings):
        return TaskExampleGen("text", files, fingerprint(input_files(files)), settings).spec.exec_properties

    before = properties(TaskDataSettings())
    assert json.loads(before["files"]) == files and before["task"] == "text"
    assert TypeAdapter(TaskDataSettings).validate_json(before["settings"]) == TaskDataSettings()
    assert properties(TaskDataSettings()) == before
    assert properties(TaskDataSettings(columns=Columns(text="body"))) != before
    table(tmp_path, "train.tsv", "ba" * 10)
    assert properties(TaskDataSettings()) != before


def test_the_executor_names_the_splits_and_leaves_only_rows(tmp_path):
    files = {"train": [table(tmp_path, "train.tsv", "ab" * 10)], "test": [table(tmp_path, "test.tsv", "ab")]}
    component = TaskExampleGen("text", files, fingerprint(input_files(files)), TaskDataSettings())
    examples = standard_artifacts.Examples()
    examples.uri = str(tmp_path / "out")
    Executor().Do({}, {"examples": [examples]}, component.spec.exec_properties)
    assert decode_split_names(examples.split_names) == ["train", "eval", "test"]
    names = {path.name for path in Path(examples.uri).iterdir()}
    assert names == {"Split-eval", "Split-test", "Split-train", "task_spec.json"}
    assert TaskSpec.load(examples.uri).counts == {"train": 18, "eval": 2, "test": 2}
    assert [row.gold for row in stored(examples.uri, "test")] == ["a", "b"]


def sentence_table(folder, name, *columns, rows=20):
    path = folder / name
    lines = [
        "\t".join(columns),
        *("\t".join(f"{c} {i}" if c != "label" else str(i % 6) for c in columns) for i in range(rows)),
    ]
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_texts_are_trained_on_and_scored_pairs_judged_by(tmp_path):
    texts = sentence_table(tmp_path, "train.tsv", "text")
    pairs = sentence_table(tmp_path, "pairs.tsv", "text", "text_pair")
    scored = sentence_table(tmp_path, "scored.tsv", "text", "text_pair", "label")
    spec = made("sentence-similarity", {"train": [texts], "eval": [scored], "test": [pairs]}, tmp_path / "out")
    assert spec.counts == {"train": 20, "eval": 20, "test": 20} and spec.task.labels == ()
    assert stored(tmp_path / "out", "train")[3] == TaskRow("3", {"text": "text 3"})
    assert stored(tmp_path / "out", "eval")[3] == TaskRow("3", {"text": "text 3", "text_pair": "text_pair 3"}, 3.0)

    name = "sentence-similarity"
    why = error(name, {"train": [scored], "eval": [scored]}, tmp_path / "a")
    assert "has a score" in why and "give scored pairs with --eval FILE" in why
    for files in ({"train": [pairs]}, {"train": [texts], "eval": [pairs]}, {"train": [texts], "eval": [texts]}):
        why = error(name, files, tmp_path / "b")
        assert "of the eval rows is not one of scored pairs (text, text_pair, label)" in why
    assert "of the test rows is not" in error(
        name, {"train": [texts], "eval": [scored], "test": [texts]}, tmp_path / "c"
    )


def test_pairs_are_held_out_to_be_found(tmp_path):
    texts, pairs = (sentence_table(tmp_path, f"{n}.tsv", *("text", "text_pair")[:n]) for n in (1, 2))
    assert made("sentence-retrieval", {"train": [pairs]}, tmp_path / "out").counts == {"train": 18, "eval": 2}
    row = stored(tmp_path / "out", "eval")[0]
    assert row.gold == row.inputs["text_pair"]
    assert "not one of pairs (text, text_pair)" in error("sentence-retrieval", {"train": [texts]}, tmp_path / "a")


NAME_IT = "rename one, or name it with --set data.columns.label=NAME"
SWAG = ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,gold\n"


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("sst-2", "a.tsv", "sentence\tsentiment\nfine\t1\n", ", line 1: has no column 'label', but 'sentence', "),
        ("swag", "a.csv", SWAG, " has no column 'label', but "),
        ("text", "a.csv", "text,mood\nfine,1\n", f", line 1: has no column 'label', but 'text', 'mood'; {NAME_IT}"),
        ("text", "a.jsonl", '{"text": "a", "mood": 1}\n', f"no key 'label', but 'text', 'mood'; {NAME_IT}; {MEND}"),
        ("text", "a.jsonl", '{"text": "a", "label": null}\n', f"no label, which training and eval rows need; {MEND}"),
    ],
)
def test_labels_are_required_for_training_and_eval(tmp_path, task, name, content, message):
    path = written(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        list(read_located(TASKS[task], path, "fail", ReadReport(), Columns(), labelled=True))
    assert message in str(caught.value) and str(caught.value).startswith(path)
    assert not [row for row in readers.read_rows(TASKS[task], path) if row.gold]


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("text", "a.csv", "text,label\na,pos\nb,pos \nc,\u3000pos\n"),
        ("text", "a.jsonl", "".join(f'{{"text": "a", "label": "{label}"}}\n' for label in ("1", "1 ", "\u00a01"))),
        ("ag-news", "a.tsv", "a\tSports\nb\tSports \nc\t Sports\n"),
        ("sst-2", "a.tsv", "sentence\tlabel\na\t1\nb\t1 \nc\t 1\n"),
    ],
)
def test_labels_are_read_without_the_blanks_around_them(tmp_path, capsys, task, name, content):
    path = written(tmp_path, name, content)
    assert len({row.gold for row in readers.read_rows(TASKS[task], path)}) == 1
    assert capsys.readouterr().err == f"bert-tfx: {path}: 2 x labels read without the blanks around them\n"


def test_f1_needs_its_label(tmp_path, monkeypatch):
    """It is that of the label "1", as GLUE's: of others scikit-learn would fail after the training."""
    monkeypatch.setitem(TASKS, "text", dataclasses.replace(TASKS["text"], metrics=("accuracy", "f1")))
    train = table(tmp_path, "a.tsv", ["yes", "no"] * 4)
    assert error("text", {"train": [train]}, tmp_path) == (
        "text: f1 is of label '1'; rename one of no, yes, or take another score"
    )


def test_labels_that_are_nearly_the_same_are_told(tmp_path, capsys):
    labels = ("1", "1.0", "0", "a", "A")
    path = written(tmp_path, "a.csv", "text,label\n" + "".join(f"x{n},{labels[n % 5]}\n" for n in range(50)))
    generate_rows(TASKS["text"], {"train": [path]}, TaskDataSettings(), str(tmp_path / "out"))
    told = "bert-tfx: {}: {} and {} are two labels; write them in one way if they are one\n"
    assert capsys.readouterr().err == told.format(path, "'1'", "'1.0'") + told.format(path, "'A'", "'a'")
