"""Official data sets have the numbers of rows and labels that their README gives."""

import os
from collections import Counter

import pytest

from bert_keras.tasks.table import TASKS
from components.task_example_gen.readers import ReadReport, read_located
from components.task_example_gen.settings import Columns

DATA = os.environ.get("BERT_DATA_DIR", "")
pytestmark = pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is unset: no official files")


def read(task, name, on_bad_row="fail", columns=None):
    report = ReadReport()
    return list(read_located(TASKS[task], f"{DATA}/{name}", on_bad_row, report, columns or Columns())), report


@pytest.mark.parametrize(
    ("task", "name", "count", "golds"),
    [
        ("cola", "glue/CoLA/train.tsv", 8551, {"1": 6023}),
        ("cola", "glue/CoLA/dev_in_domain.tsv", 527, {}),
        pytest.param("sst-2", "glue/SST-2/train.tsv", 60614, {}, marks=pytest.mark.slow),
        ("mrpc", "glue/MRPC/msr_paraphrase_train.txt", 4076, {"1": 2753}),
        ("sts-b", "glue/STS-B/train.tsv", 5749, {}),
        ("rte", "glue/RTE/train.tsv", 2490, {None: 0}),
        ("rte", "glue/RTE/test_unlabelled.tsv", 3000, {None: 3000}),
        ("wnli", "glue/WNLI/train_resplit.tsv", 565, {}),
        ("qnli", "glue_portuguese/QNLI_dev.tsv", 5732, {}),
        ("mrpc", "glue_portuguese/MRPC_train.tsv", 3668, {}),
        ("ag-news", "agnews/dev.tsv", 10001, {"World": 2509, "Sports": 2458, "Business": 2496, "Sci/Tech": 2538}),
        ("swag", "swag/swag_val_first11.csv", 11, {0: 3, 1: 1, 2: 7}),
        ("codah", "codah/fold0_train.tsv", 1665, {}),
        # Korean, with GLUE's columns.
        ("sts-b", "korean_tasks/korsts_sts-train.tsv", 5749, {}),
        ("mnli", "korean_tasks/kornli_xnli.dev.ko.tsv", 2490, {"entailment": 830, "neutral": 830}),
        ("qqp", "korean_tasks/question-pair_train.tsv", 6136, {}),
    ],
)
def test_rows_and_labels(task, name, count, golds):
    found, report = read(task, name)
    assert len(found) == count and not report.lines()
    labels = Counter(one.row.gold for one in found)
    assert {gold: labels[gold] for gold in golds} == golds
    assert len({one.row.row_id for one in found}) == count
    assert not any("<br" in text for one in found for text in one.row.inputs.values())


def test_korean_tables_are_read_by_column_names():
    # One sentence of these has a U+2028: 2,000 rows, but 2,001 with str.splitlines.
    paws, _ = read("text-pair", "korean_tasks/paws_dev_2k.tsv", columns=Columns("sentence1", "sentence2"))
    assert len(paws) == 2000 and {one.row.gold for one in paws} == {"0", "1"}
    hate, _ = read("text", "korean_tasks/hate-speech_train.tsv", columns=Columns("comment", label="hate"))
    assert Counter(one.row.gold for one in hate) == {"none": 3486, "offensive": 2499, "hate": 1911}


def test_the_malformed_row_of_qqp():
    found, report = read("qqp", "glue/QQP/train_sample.tsv", "skip")
    assert len(found) == 7999
    assert report.lines() == [
        f"{DATA}/glue/QQP/train_sample.tsv: 1 malformed row(s) skipped; the first: line 2: has 5 columns, "
        "not the header's 6"
    ]


@pytest.mark.parametrize(
    ("task", "name", "count", "unanswerable", "articles"),
    [
        ("squad1.1", "squad/dev-v1.1-even-articles.json", 5397, 0, 24),
        ("squad2.0", "squad/dev-v2.0-even-articles.json", 5554, 2701, 18),
        ("squad1.1", "xquad/xquad.zh.even-articles.json", 612, 0, 24),
        ("squad1.1", "xquad/xquad.de.even-articles.json", 612, 0, 24),
    ],
)
def test_squad_questions(task, name, count, unanswerable, articles):
    found, report = read(task, name)
    assert len(found) == count and not report.lines()
    assert sum(not one.row.gold["answers"] for one in found) == unanswerable
    assert len({one.group for one in found}) == articles


@pytest.mark.parametrize(
    ("name", "count", "types", "words"),
    [
        ("wnut17/wnut17train.conll", 3394, 6, 62730),
        ("wnut17/emerging.dev.conll", 1009, 6, 15733),
        pytest.param("wikiann/en_dev", 10000, 3, 80536, marks=pytest.mark.slow),
    ],
)
def test_tagged_sentences(name, count, types, words):
    found, _ = read("ner", name)
    assert len(found) == count
    tags = {tag for one in found for tag in one.row.gold}
    assert len({tag[2:] for tag in tags} - {""}) == types
    # One tag per word, and one word per line of the file.
    texts = [one.row.inputs["text"] for one in found]
    assert [len(text.split()) for text in texts] == [len(one.row.gold) for one in found]
    assert sum(map(len, (one.row.gold for one in found))) == words
    assert not any(text.startswith("en:") for text in texts)
