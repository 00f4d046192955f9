"""Table and summary of a search, and summary of restarts."""

import itertools
import json

import pytest

from pipeline.summaries.search import write_search
from pipeline.summaries.task import restart_rows

GRID = {"train_batch_size": [16, 32], "learning_rate": [5e-5, 2e-5], "num_train_epochs": [2.0, 3.0]}
SCORES = {
    (16, 5e-5, 2.0): 0.8,
    (16, 5e-5, 3.0): 0.85,
    (16, 2e-5, 2.0): 0.7,
    (16, 2e-5, 3.0): 0.75,
    (32, 5e-5, 2.0): 0.81,
    (32, 2e-5, 2.0): 0.71,
    (32, 2e-5, 3.0): 0.9126,
}


@pytest.fixture
def found(tmp_path):
    trainings = [
        {**dict(zip(GRID, values, strict=True)), "score": SCORES.get(values)}
        for values in itertools.product(*GRID.values())
    ]
    search = {"metric": "accuracy", "trainings": trainings, "best": trainings[-1]}
    return write_search(search, str(tmp_path / "search"))


def test_the_table_of_a_search(found, tmp_path):
    assert (tmp_path / "search" / "grid.md").read_text() == (
        "accuracy on the held-out rows\n\n"
        "| batch | learning rate | 2 epochs | 3 epochs |\n"
        "| --- | --- | --- | --- |\n"
        "| 16 | 5e-05 | 0.8 | 0.85 |\n"
        "| 16 | 2e-05 | 0.7 | 0.75 |\n"
        "| 32 | 5e-05 | 0.81 | no score |\n"
        "| 32 | 2e-05 | 0.71 | **0.9126** |\n"
    )
    stored = json.loads((tmp_path / "search" / "grid.json").read_text())
    assert stored["trainings"] == found["trainings"] and len(stored["trainings"]) == 8


def report(scores, ensemble=None, chosen=(8,)):
    named = {str(seed): {"accuracy": score} for seed, score in scores.items()}
    figures = {"mean": 0.7, "deviation": 0.08**0.5}
    return {"metric": "accuracy", "scores": named, **figures, "chosen": list(chosen), "ensemble": ensemble}


def test_restarts_in_words():
    assert restart_rows(report({8: 0.9})) == {}
    rows = restart_rows(report({7: 0.5, 8: 0.9}))
    assert rows["restarts"] == "accuracy 0.7 ± 0.2828, by seed 7: 0.5, 8: 0.9; chosen: seed 8"
    assert "optimistic" in rows["note"]
    left_out = restart_rows(report({7: 0.5, 8: None, 9: 0.9}))["restarts"]
    assert "7: 0.5, 8: no score, 9: 0.9; chosen: seed 8; mean and deviation are of the seeds with a score" in left_out
    together = restart_rows(report({7: 0.5, 8: 0.9, 9: 0.7}, {"accuracy": 0.95}, (8, 9)))
    assert {name: together[name] for name in ("seed 8", "seed 9", "ensemble")} == {
        "seed 8": "accuracy 0.9",
        "seed 9": "accuracy 0.7",
        "ensemble": "accuracy 0.95: seeds 8, 9",
    }
    assert "seed 7" not in together
