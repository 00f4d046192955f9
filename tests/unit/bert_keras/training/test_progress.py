"""The lines of a training that is not on a terminal."""

import io

import pytest
from rich.console import Console

from bert_keras.training import progress

METRICS = {"loss": 2.5, "mlm_accuracy": 0.25, "tokens_per_second": 9000.0, "useful_tokens_per_second": 8000.0}
FIGURES = "loss 2.500  mlm 25.0%  9,000 tokens/s, 8,000 without padding"


@pytest.fixture
def lines(monkeypatch):
    """`lines(first_step, {step: second})`: what is printed of 1,000 steps when calls end at those seconds."""

    def lines(first_step, calls, **options):
        out, now = io.StringIO(), [0.0]
        monkeypatch.setattr(progress, "Console", lambda **_: Console(file=out, width=40))
        monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
        with progress.TrainingProgress(1000, first_step, **options) as bar:
            for step, now[0] in calls.items():
                bar.update(step, METRICS)
        return out.getvalue().splitlines()

    return lines


def test_the_time_left_is_that_of_the_steps_after_the_first_call(lines):
    """The first call compiles, here for 60 s; 2 s per step follow; no time is left after the last step."""
    assert lines(0, {10: 60.0, 20: 80.0, 40: 120.0, 1000: 2040.0}) == [
        f"training step 10/1000  {FIGURES}",
        f"training step 40/1000  {FIGURES}  0:32:00 left",
        f"training step 1000/1000  {FIGURES}",
    ]


def test_steps_before_a_resume_do_not_count(lines):
    assert lines(500, {510: 30.0, 520: 55.0}) == [
        "resuming training at step 500 of 1000",
        f"training step 510/1000  {FIGURES}",
        f"training step 520/1000  {FIGURES}  0:20:00 left",
    ]


def test_the_devices_come_first(lines):
    assert lines(500, {}, devices="4 GPU") == ["training on 4 GPU", "resuming training at step 500 of 1000"]
