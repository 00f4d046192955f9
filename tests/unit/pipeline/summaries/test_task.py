"""Summary of restarts."""

from pipeline.summaries.task import restart_rows


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
