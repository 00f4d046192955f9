"""The gate's judgement of a student beside its teacher."""

import pytest

from components.evaluator import results
from components.evaluator.results import below_teacher


def test_scores_are_without_bounds_and_differences():
    names = ("", "_diff", "_low", "_high_diff", "_over_chance")
    assert results._metrics({f"nsp_accuracy{name}": 0.5 for name in names}) == {"nsp_accuracy": 0.5}


@pytest.mark.parametrize(
    ("score", "share", "refused"),
    [(0.45, 0.5, False), (0.44, 0.5, True), (1.0, 1.2, True), (None, 0.5, True), (0.0, None, False)],
)
def test_a_student_must_reach_its_share_of_the_teacher_s_score(score, share, refused):
    scores = {"accuracy": 0.9, "f1": 0.1}
    assert below_teacher({"metric": "accuracy", "model": score, "min_share": share, "scores": scores}) == refused
