"""`bert-tfx minimal-pairs`: a table, a file, and what --model takes."""

import json
import shutil

import pytest

from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import write
from tests.support.pipeline.command_line import bert_tfx

SHAPE = BertConfig(9, 16, 1, 2, 32, max_position_embeddings=10, type_vocab_size=2)
PAIRS = (("a b", "a b", "same", "ties"), ("a", "a b c ad", "short", "length"), ("a b c ad", "a", "long", "length"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    model = BertForPreTraining(SHAPE)
    model.build()
    folder = tmp_path_factory.mktemp("model") / "hf"
    write("hf", model, BertTokenizer([*SPECIAL_TOKENS, *"abc", "##d"], True), str(folder), "bert")
    return folder


@pytest.fixture
def pairs(tmp_path):
    path = tmp_path / "pairs.jsonl"
    keys = ("sentence_good", "sentence_bad", "UID", "linguistics_term")
    path.write_text("".join(json.dumps(dict(zip(keys, values, strict=True))) + "\n" for values in PAIRS * 2))
    return path


TABLE = """\
paradigm      pairs  accuracy  95% CI
long              2      0.0%  0.0% to 65.8%
same              2     50.0%  9.5% to 90.5%
short             2    100.0%  34.2% to 100.0%

phenomenon    pairs  accuracy  95% CI
length            4     50.0%  0.2% to 99.8%
ties              2     50.0%  9.5% to 90.5%

overall           6     50.0%  3.6% to 96.4%
6 pairs in """


def test_the_table_and_the_file_have_the_figures(model, pairs, tmp_path):
    code, out, err = bert_tfx("minimal-pairs", pairs, "--model", model, "--output", tmp_path / "out.json")
    assert code == 0, err
    assert out.startswith(TABLE) and out.endswith(f" s; {model}\n")
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["overall"] == {"pairs": 6, "accuracy": 0.5, "interval": pytest.approx([0.036, 0.964], abs=1e-3)}
    assert (found["model"], found["scoring"]) == (str(model), "pll")
    first = found["pairs"][0]
    assert first["good"] == first["bad"] < 0 and first["where"] == f"{pairs}, line 1"
    assert (first["UID"], first["linguistics_term"]) == ("same", "ties")


def test_the_file_names_pairs_without_names(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "order.jsonl").write_text(json.dumps({"sentence_good": "a b", "sentence_bad": "b a"}) + "\n")
    code, out, err = bert_tfx("minimal-pairs", "*.jsonl", "--model", model)
    assert code == 0 and out.startswith("paradigm ") and "\norder " in out and "phenomenon" not in out, err


def test_a_run_directory_stands_for_the_version_that_it_serves(model, pairs, tmp_path):
    for version in ("3", "12"):
        shutil.copytree(model, tmp_path / "run" / "serving" / version)
    (tmp_path / "run" / "serving" / "3" / "model.safetensors").unlink()
    code, out, err = bert_tfx(
        "minimal-pairs", pairs, "--model", tmp_path / "run", "--limit", 1, "--scoring", "pll-word"
    )
    assert code == 0, err
    assert out.splitlines()[-1].startswith("3 pairs in ") and out.endswith(f"{tmp_path}/run/serving/12\n")


def test_what_cannot_be_scored_is_one_line(model, pairs, tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"sentence_good": "a"}\n')
    for words, message in (
        ([pairs, "--model", tmp_path / "none"], "none: no such folder; give the folder of a model"),
        ([tmp_path / "bad.jsonl", "--model", model], "bad.jsonl, line 1: has no text under 'sentence_bad'"),
    ):
        code, out, err = bert_tfx("minimal-pairs", *words)
        assert (code, out) == (2, "") and message in err and len(err.splitlines()) == 1, err


def test_words_of_several_tokens_are_masked_whole_if_asked(model, pairs, tmp_path):
    found = []
    for scoring in ("pll", "pll-word"):
        code, _, err = bert_tfx(
            "minimal-pairs", pairs, "--model", model, "--scoring", scoring, "--output", tmp_path / scoring
        )
        assert code == 0, err
        found.append(json.loads((tmp_path / scoring).read_text())["pairs"][1])
    assert found[0]["good"] == found[1]["good"]  # "a"
    assert found[0]["bad"] != found[1]["bad"]  # "a b c ad"
