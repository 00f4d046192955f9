"""GLUE's TSVs, user tables, AG News, IMDb: official formats, their pitfalls, and errors for malformed rows."""

import gzip
import json
import zipfile

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import TASKS
from components.task_example_gen.readers import ReadReport, read_located
from components.task_example_gen.settings import Columns
from tests.support.examples.task_rows import MEND, error, rows, written

MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
    "sentence2_parse\tsentence1\tsentence2\tlabel1\tgold_label\n"
)


def single(row_id, text, gold, source=""):
    return TaskRow(row_id, {"text": text}, gold, source)


def pair(row_id, text, text_pair, gold, source=""):
    return TaskRow(row_id, {"text": text, "text_pair": text_pair}, gold, source)


@pytest.mark.parametrize(
    ("task", "content", "expected"),
    [
        # CoLA's train and dev have no header, its test has (run_classifier.py, ColaProcessor).
        (
            "cola",
            "gj04\t0\t*\tThey drank the pub.\ngj04\t1\t\tHe ran.\n",
            [("0", "They drank the pub.", "0", "gj04"), ("1", "He ran.", "1", "gj04")],
        ),
        ("cola", "index\tsentence\n7\tBill floated.\n", [("7", "Bill floated.", None)]),
        ("sst-2", "sentence\tlabel\nfine , really \t1\n", [("0", "fine , really ", "1")]),
        ("sst-2", "index\tsentence\n0\tfine\n1\tbad\n", [("0", "fine", None), ("1", "bad", None)]),
        # A byte order mark, Windows line ends, and quotes as ordinary characters.
        (
            "mrpc",
            '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t70\t71\t"No, he said.\t"Yes", she ""did.\r\n',
            [("0", '"No, he said.', '"Yes", she ""did.', "1")],
        ),
        ("mrpc", "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n4\t70\t71\tA.\tB.\n", [("4", "A.", "B.", None)]),
        (
            "sts-b",
            "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
            "9\tnews\tf\t2012\t1\tn\tn\tA plane.\tAn air plane.\t3.800\n",
            [("9", "A plane.", "An air plane.", 3.8, "news")],
        ),
        (
            "mnli",
            MNLI + "0\t1\t1\tg\tb\tb\tp\tp\tHe ran.\tHe moved.\tentailment\tentailment\n"
            "1\t1\t1\tg\tb\tb\tp\tp\tHe ran.\tHe won.\tneutral\t-\n",
            [("0", "He ran.", "He moved.", "entailment", "g")],
        ),
        (
            "qnli",
            "index\tquestion\tsentence\tlabel\n3\tWho?\tHe.\tnot_entailment\n",
            [("3", "Who?", "He.", "not_entailment")],
        ),
        ("rte", "index\tsentence1\tsentence2\tlabel\n0\tA.\tB.\tentailment\n", [("0", "A.", "B.", "entailment")]),
        ("wnli", "index\tsentence1\tsentence2\n0\tA.\t\n", [("0", "A.", "", None)]),
        (
            "qqp",
            "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n55\t1\t2\tWhy?\tWhy so?\t1\n",
            [("55", "Why?", "Why so?", "1")],
        ),
        ("qqp", "id\tquestion1\tquestion2\n0\tWhy?\tWhy so?\n", [("0", "Why?", "Why so?", None)]),
    ],
)
def test_glue(tmp_path, task, content, expected):
    make = pair if TASKS[task].pair else single
    assert rows(task, written(tmp_path, "file.tsv", content)) == [make(*one) for one in expected]


def test_only_line_feeds_end_a_line(tmp_path):
    # U+2028, U+0085 and the form feed occur in texts; str.splitlines would split there.
    path = written(tmp_path, "train.tsv", "sentence\tlabel\none\u2028two\x85three\x0cfour\t1\n")
    assert rows("sst-2", path) == [single("0", "one\u2028two\x85three\x0cfour", "1")]


def test_skipped_rows_are_counted_and_the_first_is_named(tmp_path):
    path = written(tmp_path, "train.tsv", "sentence\tlabel\n" + "bad\n" * 7 + "fine\t1\n")
    report = ReadReport()
    found = list(read_located(TASKS["sst-2"], path, "skip", report, Columns()))
    # A row's number counts the skipped rows before it.
    assert [(one.where, one.row) for one in found] == [("line 9", single("7", "fine", "1"))]
    assert report.skipped == {path: 7}
    assert report.lines() == [
        f"{path}: 7 malformed row(s) skipped; the first: line 2: has 1 columns, not the header's 2"
    ]


def test_rows_without_agreement_are_a_note(tmp_path):
    path = written(tmp_path, "dev_matched.tsv", "sentence1\tsentence2\tgold_label\nA\tB\t-\nA\tB\tneutral\n")
    report = ReadReport()
    assert len(list(read_located(TASKS["mnli"], path, "fail", report, Columns()))) == 1
    assert report.lines() == [f"{path}: 1 x rows skipped that have no label annotators agreed on ('-')"]


TABLES = {
    "a.tsv": 'label\ttext\nyes\tHe said: "well, no".\n',
    "a.csv": 'text,label,more\n"He said: ""well, no"".",yes,1\n',
    "a.jsonl": '{"text": "He said: \\"well, no\\".", "label": "yes"}\n\n',
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("compressed", [False, True])
def test_tables(tmp_path, name, compressed):
    content = TABLES[name].encode()
    path = written(tmp_path, name + ".gz" * compressed, gzip.compress(content) if compressed else content)
    assert rows("text", path) == [single("0", 'He said: "well, no".', "yes")]


def test_tables_of_several_labels(tmp_path):
    """Sorted, each once, without the blanks around them; an empty cell is no label, a missing one an unknown answer."""
    tsv = written(tmp_path, "a.tsv", "text\tlabel\na\tlove|joy\nb\t\nc\t joy | joy|\n")
    assert rows("text-labels", tsv) == [
        single("0", "a", ["joy", "love"]),
        single("1", "b", []),
        single("2", "c", ["joy"]),
    ]
    lines = [["love", 7], "love|joy", [], None]
    jsonl = written(tmp_path, "a.jsonl", "\n".join(json.dumps({"text": "a", "label": label}) for label in lines))
    assert [row.gold for row in rows("text-labels", jsonl)] == [["7", "love"], ["joy", "love"], [], None]


def test_pair_tables_with_custom_column_names(tmp_path):
    columns = Columns("question1", "question2", "is_duplicate")
    path = written(
        tmp_path,
        "q.jsonl",
        '{"question1": "a", "question2": "b", "is_duplicate": 1}\n{"question1": "a", "question2": "b"}',
    )
    assert rows("text-pair", path, columns=columns) == [pair("0", "a", "b", "1"), pair("1", "a", "b", None)]


def test_the_source_column_of_tables(tmp_path):
    """Without a setting no column is read, even one called "" (pandas' name for its index); rows may lack it."""
    csv = written(tmp_path, "a.csv", ",text,label,press\n0,fine,1,AP\n1,bad,0,\n")
    assert rows("text", csv) == [single("0", "fine", "1"), single("1", "bad", "0")]
    found = rows("text", csv, columns=Columns(source="press"))
    assert found == [single("0", "fine", "1", "AP"), single("1", "bad", "0")]
    assert [TaskRow.from_features(row.to_features()) for row in found] == found
    assert found[0].to_features()["source"] == [b"AP"] and "source" not in found[1].to_features()
    lines = written(tmp_path, "a.jsonl", '{"text": "fine", "label": "1", "press": 7}\n')
    assert "'press' is int, not text" in error("text", lines, Columns(source="press"))


def test_ag_news(tmp_path):
    assert rows("ag-news", written(tmp_path, "train.tsv", "It's #39;over.\tSci/Tech\n")) == [
        single("0", "It's #39;over.", "Sci/Tech")
    ]
    official = written(tmp_path, "train.csv", '"3","Wall St.","Short-sellers, ""bears""."\n"4","A","B"\n')
    assert rows("ag-news", official) == [
        single("0", 'Wall St. Short-sellers, "bears".', "Business"),
        single("1", "A B", "Sci/Tech"),
    ]


REVIEWS = {
    "aclImdb/train/pos/10_8.txt": b"\xef\xbb\xbfGreat.<br /><br />See it!<br />",
    "aclImdb/train/pos/9_7.txt": b"Fine.",
    "aclImdb/train/neg/0_3.txt": b"Bad.",
    "aclImdb/train/unsup/0_0.txt": b"Who knows.",
    "aclImdb/test/neg/0_2.txt": b"Worse.",
    "aclImdb/train/urls_pos.txt": b"http://www.imdb.com",
}


def test_imdb(tmp_path):
    for name, content in REVIEWS.items():
        written(tmp_path, name, content)
    expected = [
        single("train/neg/0_3", "Bad.", "neg"),
        single("train/pos/9_7", "Fine.", "pos"),
        single("train/pos/10_8", "Great. See it!", "pos"),
    ]
    assert rows("imdb", f"{tmp_path}/aclImdb/train") == expected
    assert rows("imdb", f"{tmp_path}/aclImdb/test/neg/") == [single("neg/0_2", "Worse.", "neg")]
    written(tmp_path, "aclImdb/test/pos/3_9.txt", "<br />")
    test = f"{tmp_path}/aclImdb/test"
    assert error("imdb", test) == f"{test}, test/pos/3_9.txt: text is empty; {MEND}"


def test_archives_and_damaged_files(tmp_path):
    with zipfile.ZipFile(tmp_path / "glue.zip", "w") as archive:
        archive.writestr("SST-2/train.tsv", "sentence\tlabel\nfine\t1\n")
    path = f"{tmp_path}/glue.zip"
    assert error("sst-2", path) == f"{path}: is an archive; unpack it, and give the file or the folder"
    cut = written(tmp_path, "cut.tsv.gz", gzip.compress(b"sentence\tlabel\n" + bytes(range(32, 127)) * 99)[:60])
    assert error("sst-2", cut).startswith(f"{cut}: cannot be read (")
    assert error("sst-2", f"{tmp_path}/none.tsv").startswith(f"{tmp_path}/none.tsv: cannot be read (")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(TEXT, TEXT, st.sampled_from(["yes", "no"])), min_size=1))
def test_written_tables_are_read_back(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("tables")
    lines = "".join(json.dumps({"text": a, "text_pair": b, "label": c}, ensure_ascii=False) + "\n" for a, b, c in texts)
    expected = [pair(str(number), *one) for number, one in enumerate(texts)]
    assert rows("text-pair", written(folder, "a.jsonl", lines)) == expected
    quoted = "".join('"' + '","'.join(v.replace('"', '""') for v in one) + '"\r\n' for one in texts)
    assert rows("text-pair", written(folder, "a.csv", "text,text_pair,label\r\n" + quoted)) == expected
    flat = [tuple("".join(" " if c in "\t\n\r" else c for c in value).strip() or "x" for value in one) for one in texts]
    tsv = "text\ttext_pair\tlabel\n" + "".join("\t".join(one) + "\n" for one in flat)
    assert rows("text-pair", written(folder, "a.tsv", tsv)) == [pair(str(i), *one) for i, one in enumerate(flat)]


@pytest.mark.parametrize(
    ("name", "content", "inputs", "gold"),
    [
        ("a.tsv", 'text\n"A, b\n', {"text": '"A, b'}, None),
        ("a.csv", "text,text_pair,other\nA,B,1\n", {"text": "A", "text_pair": "B"}, None),
        ("a.csv", "text,text_pair,negative,label\nA,B,C,4.5\n", {"text": "A", "text_pair": "B", "negative": "C"}, 4.5),
        ("a.jsonl", '{"text": "A", "text_pair": "B", "label": 3.25}\n', {"text": "A", "text_pair": "B"}, 3.25),
        ("a.tsv", "index\tsentence1\tsentence2\tscore\n0\tA\tB\t2.6\n", {"text": "A", "text_pair": "B"}, 2.6),
    ],
    ids=["single texts", "pairs", "a hard negative and a score", "JSON lines", "STS-B"],
)
def test_rows_for_vectors_of_texts(tmp_path, name, content, inputs, gold):
    """A score is the gold of a similarity; that of a retrieval is the text to find."""
    path = written(tmp_path, name, content)
    assert rows("sentence-similarity", path) == [TaskRow("0", inputs, gold)]
    if gold is None:
        assert rows("sentence-retrieval", path) == [TaskRow("0", inputs, inputs.get("text_pair"))]
    else:
        assert "has a label; rows of pairs that belong together have none" in error("sentence-retrieval", path)


def test_an_empty_pair_for_vectors_of_texts_is_skipped(tmp_path):
    path = written(tmp_path, "b.csv", "text,text_pair\nA, \n")
    found = read_located(TASKS["sentence-similarity"], path, "skip", report := ReadReport(), Columns(), labelled=True)
    assert list(found) == [] and report.skipped[path] == 1
