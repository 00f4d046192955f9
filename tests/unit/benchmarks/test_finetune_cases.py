"""The cases' splits: each row is trained on or tested on, never both, and lines stay byte by byte."""

import importlib
import json

import pytest


@pytest.fixture(scope="module")
def module():
    return importlib.import_module("benchmarks.finetuning.finetune_cases")


@pytest.fixture
def written(module, tmp_path, monkeypatch):
    """(train, test), bytes, of a case, by its name and the content of its sources."""

    def write(name, source, test_source=None):
        case = module.CASES[name]
        for file, content in ((case.source, source), (case.test_source, test_source)):
            if file:
                (tmp_path / "data" / file).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / "data" / file).write_bytes(content)
        monkeypatch.setenv("BERT_DATA_DIR", str(tmp_path / "data"))
        module.write_case(name, tmp_path / "case")
        return [(tmp_path / "case" / file).read_bytes() for file in case.files]

    return write


def test_every_tenth_row_is_tested_on(written):
    header = b"\xef\xbb\xbfQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n"
    lines = [b'1\t%d\t0\t"quoted\xc2\x85 \t \xe2\x80\xa8"\r\n' % i for i in range(25)]
    train, test = written("mrpc", header + b"".join(lines))
    assert test == header + lines[9] + lines[19]
    assert train == header + b"".join(line for i, line in enumerate(lines) if i not in (9, 19))


def test_a_sample_is_the_same_each_time_and_parted(written, module):
    lines = [b"a sentence \t%d" % i for i in range(60_614)]
    train, test = written("sst-2", b"\n".join([b"sentence\tlabel", *lines, b""]))
    train, test = (part.rstrip(b"\n").split(b"\n") for part in (train, test))
    assert train[0] == test[0] == b"sentence\tlabel"
    assert (len(set(train[1:])), len(set(test[1:]))) == module.CASES["sst-2"].sample
    assert not set(train[1:]) & set(test[1:])
    assert set(train[1:]) | set(test[1:]) <= set(lines)
    # The least of numpy.random.RandomState(12345).permutation(60614)[:10000], and of [10000:11500].
    assert (train[1], test[1]) == (lines[14], lines[108])


def test_two_files_stay_as_they_are(written):
    assert written("cola", b"train", b"test") == [b"train", b"test"]


def test_no_article_of_squad_is_both_trained_and_tested_on(written, module):
    def article(title):
        paragraphs = [
            {"context": f"{title} {i}", "qas": [{"id": f"{title}-{i}-{j}"} for j in range(7)]} for i in range(20)
        ]
        return {"title": title, "paragraphs": paragraphs}

    source = json.dumps({"version": "1.1", "data": [article(title) for title in "dbca"]}).encode()
    train, test = map(json.loads, written("squad1.1", source))
    assert [article["title"] for article in train["data"]] == ["a", "c"]
    assert [article["title"] for article in test["data"]] == ["b", "d"]
    for part, limit in ((train, module.SQUAD_TRAIN_QUESTIONS), (test, module.SQUAD_TEST_QUESTIONS)):
        for of in part["data"]:
            ids = [qa["id"] for paragraph in of["paragraphs"] for qa in paragraph["qas"]]
            assert ids == [f"{of['title']}-{i // 7}-{i % 7}" for i in range(limit)]
            assert all(paragraph["qas"] for paragraph in of["paragraphs"])


def test_settings_are_of_the_papers_grid(module):
    for name, case in module.CASES.items():
        # The grid's steps are too few for SQuAD's few questions.
        beyond = name == "squad1.1"
        assert case.train_batch_size in ((8,) if beyond else (16, 32)), name
        assert case.learning_rate in ((1e-4,) if beyond else (5e-5, 4e-5, 3e-5, 2e-5)), name
        assert case.epochs in (2, 3, 4), name
        config = module.training_config(case, train_rows=1000, seed=1)
        assert config.num_train_steps == 1000 * case.epochs // case.train_batch_size
        assert config.num_warmup_steps == config.num_train_steps // 10
