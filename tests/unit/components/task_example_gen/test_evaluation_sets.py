"""Evaluation sets in any format of a task, and the settings that workers get."""

import dataclasses
import gzip
import hashlib
import json
from collections import Counter

import pytest

from bert_keras.errors import InputError
from bert_keras.tasks.table import TASKS
from components.corpus_gen.filters.leaks import LeakFilter, LeakTable
from components.corpus_gen.settings import CorpusSettings, LeakSettings
from components.task_example_gen import evaluation_sets
from components.task_example_gen.evaluation_sets import content_sha256, read_evaluation_set, with_leak_table

SQUAD = {"data": [{"paragraphs": [{"context": "In May.", "qas": [{"id": "1", "question": "When?", "answers": []}]}]}]}
ANSWERED = [{"text": "May", "answer_start": 3}]
SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
FILES = {
    "squad2.json": (json.dumps(SQUAD), ["When?", "In May."]),
    "squad1.json": (json.dumps(SQUAD).replace("[]", json.dumps(ANSWERED)), ["When?", "In May."]),
    "sst-2.tsv": ("sentence\tlabel\nit 's fun\t1\n", ["it 's fun"]),
    "cola.tsv": ("gj04\t0\t*\tThey drank the pub.\n", ["They drank the pub."]),
    "mnli.tsv": ("index\tsentence1\tsentence2\tgold_label\n0\tA b.\tC d.\tneutral\n", ["A b.", "C d."]),
    "wnli.tsv": ("index\tsentence1\tsentence2\tlabel\n0\tA b.\tC d.\t1\n", ["A b.", "C d."]),
    "sts-b.tsv": ("index\tsentence1\tsentence2\tscore\n0\tA b.\tC d.\t4.5\n", ["A b.", "C d."]),
    "qnli.tsv": ("index\tquestion\tsentence\tlabel\n0\tWho?\tHe.\tentailment\n", ["Who?", "He."]),
    # The first of three rows is damaged, as in the official file.
    "qqp.tsv": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\n1\t2\t3\tHow?\tWhy?\t0\n2\t4\t5\tA?\tB?\t0\n",
        ["How?", "Why?", "A?", "B?"],
    ),
    "mrpc.txt": (
        '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tHe "said".\tSaid he.\n',
        ['He "said".', "Said he."],
    ),
    "swag.csv": (SWAG + '7,anetv_1,3,x,"A man, rides.",He,gold,sings.,falls.,turns.,waves.,1\n', None),
    "codah.tsv": ("p\tShe\tskied.\tswam.\tfroze.\tslept.\t1\n", ["She", "skied.", "swam.", "froze.", "slept."]),
    "wnut.conll": ("EU\tB-ORG\nrejects\tO\n\t\nHe\tO\n", ["EU rejects", "He"]),
    "train.txt": ("EU\tB-ORG\nrejects\tO\n\nHe\tO\n", ["EU rejects", "He"]),
    "conll2003.txt": ("-DOCSTART- -X- -X- O\n\nEU NNP B-NP I-ORG\nrejects VBZ B-VP O\n", ["EU rejects"]),
    "table.csv": ('label,text\ngood,"Well, yes"\n', ["Well, yes"]),
    "pairs.jsonl": ('{"text": "A b.", "text_pair": "C d.", "label": "x"}\n', ["A b.", "C d."]),
    "unlabelled.tsv": ("id\ttext\n1\tA b.\n", ["A b."]),
    "ag_news.tsv": ("Oil is up.\tBusiness\n", ["Oil is up."]),
    "ag_news.csv": ('"3","Oil","is up."\n', ["Oil is up."]),
}


@pytest.mark.parametrize("name", FILES)
def test_the_format_is_found(tmp_path, name):
    content, texts = FILES[name]
    (tmp_path / name).write_text(content)
    found = read_evaluation_set(str(tmp_path / name), "short")
    assert found.name == "short" and found.sha256 == hashlib.sha256(content.encode()).hexdigest()
    if texts is None:
        texts = ["A man, rides.", "He sings.", "He falls.", "He turns.", "He waves."]
    assert sorted(found.texts) == sorted(texts)


WORDS = ("the", "plot", "is", "thin", "but", "its", "actors", "are", "good")
LEAKS = [" ".join(f"{word}{number}" for word in WORDS) for number in range(100)]
# 60 good rows; 40 that the reader refuses, whose texts can be read all the same.
REFUSED = {
    "labels.tsv": ("sentence\tlabel\n", "{}\t1\n", "{}\t-1\n"),
    "columns.tsv": ("sentence\tlabel\n", "{}\t1\n", "{}\t1\tx\n"),
    "tabs.tsv": ("sentence\tlabel\n", "{}\t1\n", "{}\t1\n"),
    "table.csv": ("text,label\n", "{},x\n", "{},x,y\n"),
    "objects.jsonl": ("", '{{"text": "{}", "label": "x"}}\n', '{{"text": "{}", "label": 0.5}}\n'),
    "mnli.tsv": ("sentence1\tsentence2\tgold_label\n", "{}\tNo.\tneutral\n", "{}\tNo.\t-\n"),
    "ner.conll": ("", "{}\tO\n\n", "{}\tX-PER\n\n"),
    "squad.json": (
        '{"data": [{"paragraphs": [{"context": "A b.", "qas": [',
        '{{"id": "{0}", "question": "{0}", "answers": []}}',
        '{{"id": "{0}", "question": "{0}", "answers": [1]}}',
    ),
}


def evaluation_file(path, header, good, refused, encoding="utf-8"):
    rows = [(good if number < 60 else refused).format(leak) for number, leak in enumerate(LEAKS)]
    if path.suffix == ".conll":
        rows = [row.partition("\t")[0].replace(" ", "\tO\n") + "\t" + row.partition("\t")[2] for row in rows]
    if path.name == "tabs.tsv":
        rows = [row.replace(" but", "\tbut", number >= 60) for number, row in enumerate(rows)]
    separator, end = (",", "]}]}]}") if path.suffix == ".json" else ("", "")
    path.write_text(header + separator.join(rows) + end, encoding)
    return str(path)


@pytest.mark.parametrize("name", REFUSED)
def test_leaks_of_refused_rows_are_found(tmp_path, name, capfd):
    """100 verbatim leaks, of which 40 stayed."""
    (table,) = settings_of(tmp_path, evaluation_file(tmp_path / name, *REFUSED[name])).decontaminate
    leaks = LeakFilter(LeakSettings(), table)
    fates = [leaks(["Before.", leak, "After."], Counter())[1] for leak in LEAKS]
    assert fates == ["leak"] * 100
    assert LeakTable.read(table).sets[0]["unread"] == 0 and capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("name", "good", "refused"),
    [
        ("latin.tsv", "{}\t1\n", "caf\xe9 {}\t1\n"),
        ("broken.jsonl", '{{"text": "{}"}}\n', '{{"text": "{}\n'),
        ("latin.conll", "{}\tO\n\n", "caf\xe9 {}\tO\n\n"),
        ("pos", "", ""),
    ],
)
def test_rows_that_cannot_be_read_are_said_and_recorded(tmp_path, name, good, refused, capfd):
    path = tmp_path / name
    if name == "pos":
        path.mkdir()
        for number in range(100):
            (path / f"{number}.txt").write_bytes(b"Good." if number < 60 else b"\xe9")
    else:
        evaluation_file(path, "sentence\tlabel\n" if name == "latin.tsv" else "", good, refused, "latin-1")
    (table,) = settings_of(tmp_path, str(path)).decontaminate
    assert LeakTable.read(table).sets[0]["unread"] == 40
    assert capfd.readouterr().err == (
        f"bert-tfx: corpus.decontaminate: {path}: 40 row(s) cannot be read; documents with their texts stay\n"
    )


def test_every_reader_is_tried():
    # Those of `sentences` are tables.
    assert {TASKS[name].reader for name in evaluation_sets._TRIED} | {"imdb", "sentences"} == {
        t.reader for t in TASKS.values()
    }


def test_reviews_of_a_folder_are_one_set(tmp_path):
    for name, text in {"pos/1_9.txt": "It is<br /><br />good.", "neg/0_2.txt": "Bad."}.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert read_evaluation_set(str(tmp_path), "x").texts == ["Bad.", "It is good."]
    # Once, however it is written.
    assert evaluation_sets._paths([str(tmp_path), f"{tmp_path}/"]) == [str(tmp_path)]


def test_content_is_that_of_the_decompressed_file(tmp_path):
    content = FILES["sst-2.tsv"][0].encode()
    (tmp_path / "dev.tsv").write_bytes(content)
    (tmp_path / "dev.tsv.gz").write_bytes(gzip.compress(content))
    for path in ("dev.tsv", "dev.tsv.gz"):
        assert content_sha256(f"{tmp_path}/{path}") == hashlib.sha256(content).hexdigest()
        assert read_evaluation_set(f"{tmp_path}/{path}", "x").texts == ["it 's fun"]


@pytest.mark.parametrize("content", ["A sentence.\n\nAnother one.\n", "a\tb\tc\nd\te\tf\n", '{"title": "x"}\n', ""])
def test_a_file_of_no_task_is_refused(tmp_path, content, capfd, caplog):
    (tmp_path / "notes.tsv").write_text(content)
    with pytest.raises(InputError, match=r"^corpus\.decontaminate: .*/notes\.tsv has no format of a task .*; give "):
        read_evaluation_set(f"{tmp_path}/notes.tsv", "x")
    assert not caplog.text and capfd.readouterr() == ("", "")


def settings_of(tmp_path, *patterns):
    settings = CorpusSettings(decontaminate=patterns)
    return with_leak_table(settings, f"{tmp_path}/inputs")


def test_workers_get_a_table_named_by_its_content(tmp_path):
    for folder, sentence in (("CoLA", "gj04\t0\t*\tThey drank the pub.\n"), ("SST-2", FILES["sst-2.tsv"][0])):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "dev.tsv").write_text(sentence)
    settings = settings_of(tmp_path, f"{tmp_path}/*/dev.tsv", f"{tmp_path}/SST-2")
    (path,) = settings.decontaminate
    assert dataclasses.replace(settings, decontaminate=()) == CorpusSettings()
    # Each file once; names are as long as needed to tell them apart.
    assert [one["name"] for one in LeakTable.read(path).sets] == ["CoLA/dev.tsv", "SST-2/dev.tsv"]
    assert settings_of(tmp_path, f"{tmp_path}/*/dev.tsv") == settings
    (tmp_path / "SST-2/dev.tsv").write_text("sentence\tlabel\nit 's no fun\t1\n")
    assert settings_of(tmp_path, f"{tmp_path}/*/dev.tsv") != settings


def test_other_settings_give_another_table(tmp_path):
    (tmp_path / "dev.tsv").write_text(f"sentence\tlabel\n{'a b c d e ' * 9}\t1\n")
    paths = {
        with_leak_table(
            CorpusSettings(decontaminate=(f"{tmp_path}/dev.tsv",), leaks=leaks), str(tmp_path)
        ).decontaminate
        for leaks in (LeakSettings(), LeakSettings(ngram_words=10), LeakSettings(min_words=50))
    }
    assert len(paths) == 3


def test_without_sets_nothing_is_written(tmp_path):
    assert settings_of(tmp_path) == CorpusSettings() and not list(tmp_path.iterdir())


def test_a_pattern_without_files_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"none\*: no such file; corpus\.decontaminate takes a file, a folder or a "):
        settings_of(tmp_path, f"{tmp_path}/none*")
