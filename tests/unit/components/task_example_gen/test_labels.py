"""Labels: required for training and eval, and read without the blanks around them."""

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.table import TASKS
from components.task_example_gen.generate import generate_rows
from components.task_example_gen.readers import ReadReport, read_located, read_rows
from components.task_example_gen.settings import Columns, TaskDataSettings
from tests.support.examples.task_rows import MEND, written

NAME_IT = "rename one, or name it with --set data.columns.label=NAME"


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("sst-2", "a.tsv", "sentence\tsentiment\nfine\t1\n", ", line 1: has no column 'label', but 'sentence', "),
        (
            "swag",
            "a.csv",
            ",video-id,sent1,sent2,ending0,ending1,ending2,ending3,gold\n",
            " has no column 'label', but ",
        ),
        (
            "text",
            "a.csv",
            "text,sentiment\nfine,1\n",
            f", line 1: has no column 'label', but 'text', 'sentiment'; {NAME_IT}",
        ),
        (
            "text",
            "a.jsonl",
            '{"text": "fine", "sentiment": 1}\n',
            f", line 1: has no key 'label', but 'text', 'sentiment'; {NAME_IT}; {MEND}",
        ),
        (
            "text",
            "a.jsonl",
            '{"text": "fine", "label": null}\n',
            f", line 1: has no label, which training and eval rows need; {MEND}",
        ),
    ],
)
def test_labels_are_required_for_training_and_eval(tmp_path, task, name, content, message):
    path = written(tmp_path, name, content)
    with pytest.raises(InputError) as caught:
        list(read_located(TASKS[task], path, "fail", ReadReport(), Columns(), labelled=True))
    assert message in str(caught.value) and str(caught.value).startswith(path)
    assert not [row for row in read_rows(TASKS[task], path) if row.gold]


@pytest.mark.parametrize(
    ("task", "name", "content"),
    [
        ("text", "a.csv", "text,label\na,pos\nb,pos \nc,\u3000pos\n"),
        (
            "text",
            "a.jsonl",
            "".join(f'{{"text": "a", "label": "{label}"}}\n' for label in ("pos", "pos ", "\u00a0pos")),
        ),
        ("ag-news", "a.tsv", "a\tSports\nb\tSports \nc\t Sports\n"),
        ("sst-2", "a.tsv", "sentence\tlabel\na\t1\nb\t1 \nc\t 1\n"),
    ],
)
def test_labels_are_read_without_the_blanks_around_them(tmp_path, capsys, task, name, content):
    path = written(tmp_path, name, content)
    assert len({row.gold for row in read_rows(TASKS[task], path)}) == 1
    assert capsys.readouterr().err == f"bert-tfx: {path}: 2 x labels read without the blanks around them\n"


def test_labels_that_are_nearly_the_same_are_told(tmp_path, capsys):
    labels = ("1", "1.0", "0", "a", "A")
    path = written(tmp_path, "a.csv", "text,label\n" + "".join(f"x{n},{labels[n % 5]}\n" for n in range(50)))
    generate_rows(TASKS["text"], {"train": [path]}, TaskDataSettings(), str(tmp_path / "out"))
    told = "bert-tfx: {}: {} and {} are two labels; write them in one way if they are one\n"
    assert capsys.readouterr().err == told.format(path, "'1'", "'1.0'") + told.format(path, "'A'", "'a'")


def test_a_label_of_blanks_is_empty(tmp_path):
    with pytest.raises(InputError, match="line 2: the label is empty"):
        list(read_rows(TASKS["text"], written(tmp_path, "a.csv", "text,label\nfine, \n")))
