"""`bert-tfx score`: official files in, one JSON object out, without TensorFlow."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pipeline.command_line import bert_tfx

DATA = os.environ.get("BERT_DATA_DIR")


def squad(*questions):
    qas = [{"id": n, "question": "?", "answers": answers} for n, answers in questions]
    return json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "in May", "qas": qas}]}]})


MAY = [{"text": "May", "answer_start": 3}]
SWAG_HEADER = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label"
SWAG = f"{SWAG_HEADER}\n5,v,1,A man rides. He,A man rides.,He,gold,sings.,falls.,turns.,waves.,3\n"
# Task, GOLD, PREDICTIONS, scores.
CASES = {
    "sst2": ("gold.tsv", "sentence\tlabel\nfine \t1\nbad \t0\n", "index\tprediction\n1\t1\n0\t1\n", {"accuracy": 0.5}),
    "cola": (
        "gold.tsv",
        "gj04\t1\t\tWe met.\ngj04\t0\t*\tMet we the.\n",
        "index\tprediction\n0\t1\n1\t0\n",
        {"matthews_correlation": 1.0, "accuracy": 1.0},
    ),
    "sts-b": (
        "gold.tsv",
        "index\tsentence1\tsentence2\tscore\n3\ta\tb\t1.0\n4\tc\td\t2.0\n",
        "index\tprediction\n3\t2.5\n4\t2.5\n",
        {"spearman": None, "pearson": None},
    ),
    "text": (
        "gold.csv",
        'text,label\n"Well, yes",good\nNo,bad\n',
        "index\tprediction\n0\tgood\n1\tgood\n",
        {"accuracy": 0.5},
    ),
    "swag": ("gold.csv", SWAG, ",pred\n5,3\n", {"accuracy": 1.0}),
    "codah": ("gold.tsv", "p\tShe\tran.\tsat.\tfell.\tsaid.\t2\n", ",pred\n0,1\n", {"accuracy": 0.0}),
    # IOB1: of two entities only B-ORG is predicted, and nothing else.
    "ner": (
        "gold.conll",
        "EU NNP I-ORG\nin IN O\nRome NNP I-LOC\n",
        "EU B-ORG\nin O\nRome O\n",
        {"f1": 2 / 3, "precision": 1.0, "recall": 0.5, "accuracy": 2 / 3},
    ),
    "squad1.1": ("gold.json", squad(("a", MAY), ("b", MAY)), '{"a": "in May"}', {"exact_match": 0.0, "f1": 100 / 3}),
}


def files(folder, gold_name, gold, predictions):
    (folder / gold_name).write_text(gold)
    (folder / "predictions").write_text(predictions)
    return folder / gold_name, folder / "predictions"


@pytest.mark.parametrize("task", CASES)
def test_official_files_are_scored(task, tmp_path):
    name, gold, predictions, expected = CASES[task]
    code, out, err = bert_tfx("score", task, *files(tmp_path, name, gold, predictions))
    assert code == 0, err
    assert json.loads(out) == pytest.approx(expected)
    assert ("no prediction for 1 of 2: counted as wrong" in err) == (task == "squad1.1")


def test_labels_that_gold_lacks_are_counted_aloud(tmp_path):
    paths = files(tmp_path, "gold.csv", "text,label\na,1.0\nb,0.0\n", "index\tprediction\n0\t1\n1\t0.0 \n")
    code, out, err = bert_tfx("score", "text", *paths)
    assert (code, json.loads(out)) == (0, {"accuracy": 0.5})
    assert err.endswith(f"1 of 2 count as wrong, as {paths[0]} has no label '1', only '0.0', '1.0'\n")


@pytest.mark.parametrize("predicted", ["EU B-ORG\nis O\n", "1 EU B-ORG\n2 is O\n"])
def test_words_may_be_counted_in_a_first_column(tmp_path, predicted):
    code, out, err = bert_tfx("score", "ner", *files(tmp_path, "gold.conll", "1 EU B-ORG\n2 is O\n", predicted))
    assert code == 0 and json.loads(out)["f1"] == 1.0 and "a first column that counts the words, left out" in err


def test_squad_2_with_null_odds(tmp_path):
    gold, predictions = files(tmp_path, "gold.json", squad(("a", MAY), ("b", [])), '{"a": "May", "b": "in"}')
    (tmp_path / "null_odds.json").write_text('{"a": -2.0, "b": 3.0}')
    code, out, err = bert_tfx("score", "squad2.0", gold, predictions)
    assert (code, err) == (0, "") and json.loads(out)["exact"] == 50 and "best_f1" not in json.loads(out)
    code, out, _ = bert_tfx("score", "squad2.0", gold, predictions, "--null-odds", tmp_path / "null_odds.json")
    scores = json.loads(out)
    # Odds of 3 are above 1: the question has no answer, and that is right.
    assert (code, scores["exact"], scores["best_f1"], scores["best_f1_thresh"]) == (0, 100, 100, -2.0)


@pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is not set")
@pytest.mark.parametrize(
    ("task", "gold", "system"),
    [
        ("squad1.1", "dev-v1.1-even-articles.json", "v1.1_Logistic_Regression_Baseline_Stanford_Un"),
        ("squad2.0", "dev-v2.0-even-articles.json", "v2.0_nlnet_single_model_Microsoft_Research_As"),
    ],
)
def test_a_real_system_scores_as_stated(task, gold, system):
    folder = Path(DATA, "squad")
    official = json.loads((folder / "predictions" / f"{system}.scores.json").read_text())
    code, out, err = bert_tfx("score", task, folder / gold, folder / "predictions" / f"{system}.json")
    assert code == 0 and ("no prediction for 8 of 5397: counted as wrong" in err) == (task == "squad1.1")
    scores = json.loads(out)
    assert len(scores) >= 2 and scores == {name: pytest.approx(official[name], abs=1e-6) for name in scores}


@pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is not set")
@pytest.mark.parametrize("name", ["wnut17/emerging.dev.conll", "wikiann/en_dev"])
def test_the_gold_tags_of_real_files_are_all_right(name):
    """The predictions have the sentences, words and tags that the reader reads from the data."""
    code, out, err = bert_tfx("score", "ner", Path(DATA, name), Path(DATA, name))
    assert code == 0, err
    assert json.loads(out) == {"f1": 1.0, "precision": 1.0, "recall": 1.0, "accuracy": 1.0}


@pytest.mark.parametrize(
    ("words", "gold", "why"),
    [
        (["sst3"], "", "sst3: no such task; there are mnli"),
        (["sst2", "--null-odds", "x"], "", "--null-odds x: not applicable, every question of sst-2 has an answer"),
        (["sst2"], "index\tsentence\n0\tfine\n", "gold.tsv, line 1: has no column 'label', but"),
        (["sst2"], "sentence\tlabel\n", "gold.tsv: has no rows"),
        (["sst2"], "sentence\tlabel\nfine\t1\n", "predictions:2: '2' is not a label; labels are 0, 1"),
    ],
)
def test_unusable_files_are_one_line(words, gold, why, tmp_path):
    task, *options = words
    paths = files(tmp_path, "gold.tsv", gold, "index\tprediction\n0\t2\n")
    code, out, err = bert_tfx("score", task, *paths, *options)
    assert (code, out) == (2, "") and err.startswith("bert-tfx: ") and err.count("\n") == 1 and why in err


def test_scoring_does_not_import_tensorflow(tmp_path):
    name, gold, predictions, _ = CASES["ner"]
    words = ["bert-tfx", "score", "ner", *map(str, files(tmp_path, name, gold, predictions))]
    code = (
        f"import sys; sys.argv = {words!r}\n"
        "from pipeline.cli import main\n"
        "try: main()\n"
        "finally: sys.exit(str({'tensorflow', 'keras', 'tfx'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert json.loads(done.stdout)["precision"] == 1.0 and done.stderr.strip() == "set()"
