"""Finding the files of splits: official names, aliases, explicit files, and errors."""

import pytest
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bert_keras.errors import InputError
from bert_keras.tasks.table import TASKS
from components.task_example_gen.split_files import find_splits, input_files, names_of
from tests.support.examples.object_stores import SCHEMES, in_memory


def folder_of(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return str(folder)


def error(task, *args):
    with pytest.raises(InputError) as caught:
        find_splits(TASKS[task], *args)
    return str(caught.value)


@pytest.mark.parametrize(
    ("task", "files"),
    [
        ("cola", {"train": "train.tsv", "eval": "dev.tsv", "test": "test.tsv"}),
        ("cola", {"train": "train.tsv", "eval": "dev_in_domain.tsv"}),
        ("sst-2", {"train": "train.tsv.gz", "eval": "dev.tsv"}),
        (
            "mnli",
            {
                "train": "train.tsv",
                "eval": "dev_matched.tsv",
                "eval_mismatched": "dev_mismatched.tsv",
                "test": "test_matched.tsv",
                "test_mismatched": "test_mismatched.tsv",
            },
        ),
        ("mnli", {"train": "multinli.train.ko.tsv", "eval": "xnli.dev.ko.tsv", "test": "xnli.test.ko.tsv"}),
        ("mrpc", {"train": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"}),
        ("mrpc", {"train": "MRPC_train.tsv", "eval": "MRPC_dev.tsv"}),
        ("sts-b", {"train": "korsts_sts-train.tsv", "eval": "sts-dev.tsv"}),
        ("qqp", {"train": "train_sample.tsv"}),
        ("wnli", {"train": "train_resplit.tsv"}),
        ("rte", {"train": "train.tsv", "test": "test_unlabelled.tsv"}),
        ("ag-news", {"train": "train.csv", "test": "test.csv"}),
        ("text", {"train": "train.jsonl", "eval": "valid.csv", "test": "test.tsv.gz"}),
        ("swag", {"train": "train.csv", "eval": "val.csv", "test": "test.csv"}),
        ("codah", {"train": "fold0_train.tsv"}),
        ("squad1.1", {"train": "train-v1.1.json", "eval": "dev-v1.1-even-articles.json"}),
        ("squad1.1", {"train": "KorQuAD_v1.0_train.json", "eval": "KorQuAD_v1.0_dev.json"}),
        ("mlqa", {"train": "cmrc2018_train.json", "eval": "cmrc2018_dev.json"}),
        ("mlqa", {"train": "train-zh.json", "eval": "dev-context-zh-question-zh.json", "test": "test-zh.json"}),
        ("squad2.0", {"train": "train-v2.0.json", "eval": "dev-v2.0.json"}),
        ("ner", {"train": "train.txt", "eval": "valid.txt", "test": "test.txt"}),
        ("ner", {"train": "train.txt", "eval": "testa", "test": "testb"}),
        ("ner", {"train": "eng.train", "eval": "eng.testa", "test": "eng.testb"}),
        ("ner", {"train": "wnut17train.conll", "eval": "emerging.dev.conll", "test": "emerging.test.annotated"}),
        ("ner", {"train": "train", "eval": "dev", "test": "test"}),
    ],
)
def test_official_folders(tmp_path, task, files):
    data = folder_of(tmp_path, "README", "original/train.tsv", *files.values())
    expected = {split: [f"{data}/{name}"] for split, name in files.items()}
    assert find_splits(TASKS[task], data) == expected
    assert list(find_splits(TASKS[task], data + "/")) == list(expected)


def test_every_task_has_names():
    assert {name for name, task in TASKS.items() if task.reader != "imdb" and "train" not in names_of(task)} == set()


def test_imdb(tmp_path):
    names = ("aclImdb/train/pos/0_9.txt", "aclImdb/train/neg/0_1.txt", "aclImdb/train/unsup/0_0.txt")
    names += ("aclImdb/test/pos/0_9.txt",)
    data = folder_of(tmp_path / "tree", *names)
    task = TASKS["imdb"]
    expected = {"train": [f"{data}/aclImdb/train"], "test": [f"{data}/aclImdb/test"]}
    assert find_splits(task, data) == expected
    assert find_splits(task, f"{data}/aclImdb/") == expected
    # Without the reviews that are not read.
    assert len(input_files(expected)) == 3
    assert error("imdb", f"{tmp_path}/none") == (
        f"{tmp_path}/none: has no reviews, pos/*.txt and neg/*.txt; --data takes the folder aclImdb"
    )


def test_reviews_without_split_folders_are_training_data(tmp_path):
    data = folder_of(tmp_path, "pos/cv000_1.txt", "neg/cv000_2.txt")
    assert find_splits(TASKS["imdb"], data) == {"train": [data]}


def test_hidden_reviews_are_left_out(tmp_path):
    data = folder_of(tmp_path, "pos/0.txt", "neg/1.txt", "pos/._0.txt", ".ipynb_checkpoints/pos/0.txt")
    assert [file.path for file in input_files({"train": [data]})] == [f"{data}/neg/1.txt", f"{data}/pos/0.txt"]


def test_relative_names_with_brackets_are_fingerprinted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "b[x]", "train.csv")
    (tmp_path / "[y].csv").write_text("text,label\n")
    splits = find_splits(TASKS["text"], "b[x]", {"eval": ["[y].csv"]})
    assert [file.path for file in input_files(splits)] == ["[y].csv", "b[x]/train.csv"]


def test_explicit_files_replace_found_ones(tmp_path):
    data = folder_of(tmp_path, "train.tsv", "dev.tsv", "mine.tsv", "more.tsv")
    explicit = {"train": [f"{data}/mine.tsv", f"{data}/more.tsv"], "eval": None, "test": []}
    assert find_splits(TASKS["text"], data, explicit) == {"train": explicit["train"], "eval": [f"{data}/dev.tsv"]}
    assert find_splits(TASKS["text"], None, explicit) == {"train": explicit["train"]}
    assert find_splits(TASKS["text"], f"{data}/mine.tsv") == {"train": [f"{data}/mine.tsv"]}


def test_errors_list_the_names_looked_for(tmp_path):
    data = folder_of(tmp_path, "dev.tsv", "train-v1.1-a.json", "train-v1.1-b.json")
    assert error("cola", data) == (
        f"{data}: has no training file for cola; looked for train.tsv, in_domain_train.tsv; name it with --train FILE"
    )
    assert error("cola", f"{data}/none") == (
        f"{data}/none: no such file or folder; --data takes the folder of cola's official files"
    )
    assert error("cola") == "cola: no training file; give --data FOLDER or --train FILE"
    assert error("cola", None, {"train": [f"{data}/x.tsv"]}) == f"{data}/x.tsv: no such file; --train takes files"
    assert error("cola", data, {"train": [f"{data}/dev.tsv"]}) == (
        f"{data}/dev.tsv: was given for eval and for train; give each its own file"
    )
    assert error("squad1.1", data) == (
        f"{data}: both train-v1.1-a.json and train-v1.1-b.json exist; name one with --train, --eval or --test"
    )


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_name_of_a_folder_in_a_store_is_no_pattern(scheme, monkeypatch):
    FileSystems.set_options(PipelineOptions([]))
    store = in_memory(monkeypatch, scheme)
    for folder in ("a[1]", "a1"):
        store.write(f"{scheme}://bucket/{folder}/train.tsv", folder.encode())
    splits = find_splits(TASKS["sst-2"], f"{scheme}://bucket/a[1]", {})
    assert splits == {"train": [f"{scheme}://bucket/a[1]/train.tsv"]}
    assert [(file.path, file.size) for file in input_files(splits)] == [(f"{scheme}://bucket/a[1]/train.tsv", 4)]
