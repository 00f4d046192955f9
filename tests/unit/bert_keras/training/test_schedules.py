"""The learning rate of each step."""

import pytest

from bert_keras.training.config import TrainingConfig
from bert_keras.training.schedules import create_schedule


def rate(schedule, step, peak=1e-4, num_train_steps=1_000_000, num_warmup_steps=10_000):
    config = TrainingConfig(
        schedule=schedule, learning_rate=peak, num_train_steps=num_train_steps, num_warmup_steps=num_warmup_steps
    )
    return float(create_schedule(config)(step))


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.0), (1, 1e-8), (9_999, 0.9999e-4), (10_000, 0.99e-4), (500_000, 0.5e-4), (1_000_000, 0.0), (1_000_001, 0.0)],
)
def test_the_original_schedule_drops_at_the_end_of_the_warm_up(step, expected):
    assert rate("bert", step) == pytest.approx(expected, rel=1e-5, abs=1e-13)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (0, 0.0),
        (1, 1e-8),
        (9_999, 0.9999e-4),
        (10_000, 1e-4),
        (505_000, 0.5e-4),  # half way from 10,000 to 1,000,000
        (999_999, 1e-4 / 990_000),
        (1_000_000, 0.0),
        (1_000_001, 0.0),
    ],
)
def test_the_linear_schedule_decays_from_the_peak(step, expected):
    assert rate("linear", step) == pytest.approx(expected, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("schedule", ["bert", "linear"])
def test_without_warm_up_the_first_rate_is_the_peak(schedule):
    rates = [rate(schedule, step, num_train_steps=4, num_warmup_steps=0) for step in range(5)]
    assert rates == pytest.approx([1e-4, 0.75e-4, 0.5e-4, 0.25e-4, 0.0])


@pytest.mark.parametrize(
    ("schedule", "expected"), [("cosine", [0.0, 0.5, 1.0, 0.75, 0.25, 0.0, 0.0]), ("constant", [0.0, 0.5, *[1.0] * 5])]
)
def test_after_the_warm_up_the_rate_falls_by_a_cosine_or_stays(schedule, expected):
    """Warm-up of 2 of 5 steps; the cosine is 1/4 and 3/4 through at thirds of the remaining steps."""
    rates = [rate(schedule, step, peak=1.0, num_train_steps=5, num_warmup_steps=2) for step in range(7)]
    assert rates == pytest.approx(expected, abs=1e-6)


def test_warm_up_only_ends_at_the_peak():
    """Steps 0 to 3 are taken; the rate at N is not used."""
    rates = [rate("linear", step, num_train_steps=4, num_warmup_steps=4) for step in range(5)]
    assert rates == pytest.approx([0.0, 0.25e-4, 0.5e-4, 0.75e-4, 0.0])
