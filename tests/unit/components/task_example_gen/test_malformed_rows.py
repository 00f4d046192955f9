"""Malformed rows of every format are refused with file, line, reason and remedy, and so are files of another format."""

import pytest

from bert_keras.errors import InputError
from tests.support.examples.task_rows import MEND, NOT_UTF8, error, rows, written

NAME_IT = "rename one, or name it with --set data.columns.text=NAME"
RELEVANCE = "it must be 0, not relevant, or a whole number above"
SWAG = "video-id,sent1,sent2,ending0,ending1,ending2,ending3,label\n"
SQUAD = "is not in SQuAD's format, data > paragraphs > context and qas"
ARTICLE = '{"data": [{"title": "May", "paragraphs": [{"context": "It."}]}]}'
PAIR = "sentence1\tsentence2"


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("sst-2", "a.tsv", "sentence\tlabel\nfine\t1\nfine 1\n", "line 3: has 1 columns, not the header's 2"),
        ("sst-2", "a.tsv", "sentence\tlabel\nfine\t2\n", "line 2: label '2' is not one of 0, 1"),
        ("sst-2", "a.tsv", "sentence\tlabel\n \t1\n", "line 2: text is empty"),
        ("sst-2", "a.tsv", b"sentence\tlabel\nfine\t1\nna\xefve\t1\n", "line 3: is not UTF-8 (byte 2 of the line)"),
        ("cola", "a.tsv", "gj04\t0\t*\tThey ran.\ngj04\t0\tThey ran.\n", "line 2: has 3 columns, not the header's 4"),
        ("rte", "a.tsv", f"index\t{PAIR}\tlabel\n0\tA\t\tentailment\n", "line 2: text_pair is empty"),
        ("sts-b", "a.tsv", f"{PAIR}\tscore\nA\tB\tnan\n", "line 2: score is 'nan', not a number"),
        ("sts-b", "a.tsv", f"{PAIR}\tscore\nA\tB\t5.5\n", "line 2: 5.5 is not in [0, 5]"),
        ("text", "a.tsv", "text\tlabel\nfine\t \n", "line 2: the label is empty"),
        ("text", "a.csv", 'text,label\n"fine,1\nfine,1\n"x",1\n', "line 2: is not CSV (',' expected after '\"')"),
        ("text", "a.csv", "text,label\nfine\n", "line 2: has 1 columns, not the header's 2"),
        ("text", "a.csv", b"text,label\nfine,1\nna\xefve,1\n", "line 3: is not UTF-8"),
        ("text", "a.jsonl", '{"text": "a"}\n{"a"}\n', "line 2: is not JSON (Expecting ':' delimiter at character 5)"),
        ("text", "a.jsonl", "[1]\n", "line 1: is list, not an object"),
        ("text", "a.jsonl", '{"body": "a"}\n', f"line 1: has no key 'text', but 'body'; {NAME_IT}"),
        ("text", "a.jsonl", '{"text": null}\n', "line 1: 'text' is NoneType, not text"),
        ("text", "a.jsonl", '{"text": "a", "label": 0.5}\n', "line 1: 'label' is float, not a label's name"),
        ("text", "a.jsonl", '{"text": "a\\ud800", "label": "b"}\n', f"line 1: {NOT_UTF8}"),
        ("text", "a.jsonl", '{"text": "a", "label": "\\udce9"}\n', f"line 1: {NOT_UTF8}"),
        ("text-labels", "a.jsonl", '{"text":"a", "label": [1, true]}\n', "line 1: 'label' is bool, not a label's name"),
        ("sentence-similarity", "a.csv", "text,text_pair,label\nA,B,x\n", "line 2: label is 'x', not a number"),
        ("rerank", "a.tsv", "query\tpassage\tlabel\nwho?\tAnn\t-1\n", f"line 2: 'label' is -1; {RELEVANCE}"),
        ("rerank", "a.tsv", "query\tpassage\tlabel\nwho?\tAnn\t0.5\n", f"line 2: 'label' is 0.5; {RELEVANCE}"),
        ("rerank", "a.tsv", "query\tpassage\tlabel\nwho?\tAnn\tyes\n", "line 2: label is 'yes', not a number"),
        ("ag-news", "a.csv", '"5","A","B"\n', "line 1: the class is 5, not one of 1 to 4"),
        ("swag", "a.csv", f"{SWAG}v,A,B,a,b,c,d,4\n", "line 2: choice 4 is not in 0 to 3"),
        ("codah", "a.tsv", "p\tShe\ta\tb\tc\t1\n", "line 1: has 6 columns, not CODAH's 7"),
        ("codah", "a.tsv", "p\tShe\ta\tb\tc\td\tb\n", "line 1: the right answer is 'b', not a whole number"),
    ],
)
def test_a_malformed_row_is_refused(tmp_path, task, name, content, message):
    path = written(tmp_path, name, content)
    assert error(task, path) == f"{path}, {message}; {MEND}"


@pytest.mark.parametrize("on_bad_row", ["fail", "skip"])
def test_the_rest_of_a_file_is_no_row_to_skip(tmp_path, on_bad_row):
    path = written(tmp_path, "a.csv", 'text,label\nfine,1\n"fine,1\n' + "fine,0\n" * 990)
    with pytest.raises(InputError, match=r"a\.csv, line 3: is not CSV .*; close the quote that this row opens"):
        rows("text", path, on_bad_row)


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("qnli", "a.tsv", "question\tlabel\n", ", line 1: has no column 'sentence', but 'question', 'label'; give "),
        ("text", "a.csv", "text,,,label,text\n", ", line 1: several columns are named 'text'; rename the others"),
        ("text", "a.tsv", "body\tlabel\n", f", line 1: has no column 'text', but 'body', 'label'; {NAME_IT}"),
        ("sentence-similarity", "a.csv", "body\nA\n", f", line 1: has no column 'text', but 'body'; {NAME_IT}"),
        ("swag", "a.csv", "video-id,sent1\n", ", line 1: has no column 'sent2', but 'video-id', 'sent1'; give train"),
        ("squad1.1", "a.json", '{"data": [\n{,}]}', ", line 2, column 2: is not JSON (Expecting property name "),
        ("squad1.1", "a.json", b"\xff\xfe{}", ": is not UTF-8 (byte 0); give the official file"),
        ("squad1.1", "a.json", '{"dat": []}', f", data: {SQUAD}; give the official file"),
        ("squad1.1", "a.json", ARTICLE, f", 'May', paragraph 0: {SQUAD}; give the official file"),
        ("text", "a.xls", "", " is not a table by its name, which must end in .tsv, .txt, "),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path, task, name, content, message):
    path = written(tmp_path, name, content)
    assert error(task, path).startswith(f"{path}{message}")
