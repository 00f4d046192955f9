"""TensorBoard's histograms, and the lines of a training that is not on a terminal."""

import io

import keras
import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console

from bert_keras.training import log
from bert_keras.training.log import TrainingLog


def test_histograms_count_every_weight(tmp_path):
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(100)])
    kernel, bias = model.layers[0].weights
    kernel.assign(np.linspace(-1.5, 1.5, 300).reshape(3, 100))
    bias.assign([np.inf] + 99 * [0])
    TrainingLog(str(tmp_path), 0).write_histograms(7, model)
    (file,) = (tmp_path / "tensorboard" / "train").glob("events*")
    found = {}
    for record in tf.data.TFRecordDataset(str(file)):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            assert event.step == 7 and value.metadata.plugin_data.plugin_name == "histograms"
            found[value.tag] = tf.make_ndarray(value.tensor)
    assert found.keys() == {kernel.path, bias.path}
    np.testing.assert_allclose(found[kernel.path], [[-1.5 + i / 10, -1.4 + i / 10, 10] for i in range(30)], atol=1e-6)
    # All are 0, somewhere.
    start, end, count = found[bias.path][found[bias.path][:, 2] > 0][0]
    assert start <= 0 <= end and count == 99


METRICS = {"loss": 2.5, "mlm_accuracy": 0.25, "tokens_per_second": 9000.0, "useful_tokens_per_second": 8000.0}
FIGURES = "loss 2.500  mlm 25.0%  9,000 tokens/s, 8,000 without padding"


@pytest.fixture
def lines(monkeypatch):
    """`lines(first_step, {step: second})`: what is printed of 1,000 steps when calls end at those seconds."""

    def lines(first_step, calls, **options):
        out, now = io.StringIO(), [0.0]
        monkeypatch.setattr(log, "Console", lambda **_: Console(file=out, width=40))
        monkeypatch.setattr(log.time, "monotonic", lambda: now[0])
        with log.TrainingProgress(1000, first_step, **options) as bar:
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
