"""The learning rate of each step (FACTS D3)."""

import pytest

from bert_keras.config import TrainingConfig
from bert_keras.optimizer import create_schedule


def rate(schedule, step, peak=1e-4, num_train_steps=1_000_000, num_warmup_steps=10_000):
    config = TrainingConfig(
        schedule=schedule, learning_rate=peak, num_train_steps=num_train_steps, num_warmup_steps=num_warmup_steps
    )
    return float(create_schedule(config)(step))


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.0), (1, 1e-8), (9_999, 0.9999e-4), (10_000, 0.99e-4), (500_000, 0.5e-4), (1_000_000, 0.0), (1_000_001, 0.0)],
)
def test_d3_the_originals_jumps_where_the_warm_up_ends(step, expected):
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
def test_d3_the_continuous_one_goes_on_from_the_peak(step, expected):
    assert rate("linear", step) == pytest.approx(expected, rel=1e-6, abs=1e-13)


@pytest.mark.parametrize("schedule", ["bert", "linear"])
def test_without_warm_up_the_first_rate_is_the_peak(schedule):
    rates = [rate(schedule, step, num_train_steps=4, num_warmup_steps=0) for step in range(5)]
    assert rates == pytest.approx([1e-4, 0.75e-4, 0.5e-4, 0.25e-4, 0.0])


def test_warm_up_alone_ends_at_the_peak():
    """Steps 0 to 3 are taken; the rate at N is not used."""
    rates = [rate("linear", step, num_train_steps=4, num_warmup_steps=4) for step in range(5)]
    assert rates == pytest.approx([0.0, 0.25e-4, 0.5e-4, 0.75e-4, 0.0])
