"""TensorBoard's scalars, and the lines of a training that is not on a terminal."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf
from rich.console import Console
from tensorboard.backend.event_processing.event_accumulator import STORE_EVERYTHING_SIZE_GUIDANCE, EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from bert_keras.training import log
from bert_keras.training.log import TrainingLog


def events_of(folder):
    """What TensorBoard reads: by tag, its plugin and `{step: array}`; TensorFlow reads as many events."""
    accumulator = EventAccumulator(str(folder), STORE_EVERYTHING_SIZE_GUIDANCE).Reload()
    tags = accumulator.Tags()["tensors"]
    files = sorted(map(str, folder.glob("events*")))
    messages = [tf.compat.v1.Event.FromString(record.numpy()) for record in tf.data.TFRecordDataset(files)]
    assert [message.file_version for message in messages].count("brain.Event:2") == len(files)
    assert sum(len(message.summary.value) for message in messages) == sum(len(accumulator.Tensors(t)) for t in tags)
    return {
        tag: (
            accumulator.SummaryMetadata(tag).plugin_data.plugin_name,
            {event.step: make_ndarray(event.tensor_proto) for event in accumulator.Tensors(tag)},
        )
        for tag in tags
    }


def test_scalars_and_lines_of_a_resumed_run(tmp_path):
    """Each record is there at once; a resume drops lines after its checkpoint, and the line that a kill cut off."""
    killed = TrainingLog(str(tmp_path), 0)
    for step in (10, 20, 30):
        killed.write("train", step, {"loss": 2.5 + step, "accuracy": float("nan")})
    killed.write("eval", 20, {"loss": 7})
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"kind": "train", "st')
    resumed = TrainingLog(str(tmp_path), 20)
    resumed.write("train", 40, {"loss": 1})
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    expected = [("train", 10, 12.5), ("train", 20, 22.5), ("eval", 20, 7), ("train", 40, 1)]
    assert [(record["kind"], record["step"], record["loss"]) for record in records] == expected
    assert records[0]["accuracy"] is None
    scalars = events_of(tmp_path / "tensorboard" / "train")
    assert scalars["loss"] == ("scalars", {10: 12.5, 20: 22.5, 30: 32.5, 40: 1})
    assert np.isnan(scalars["accuracy"][1][10]) and scalars["loss"][1][10].dtype == np.float32
    assert events_of(tmp_path / "tensorboard" / "eval") == {"loss": ("scalars", {20: 7})}


def test_a_store_gets_each_record_at_once(monkeypatch):
    """Nothing can be appended to an object: it is written anew."""
    objects = {}
    monkeypatch.setattr(log, "atomic_write_anywhere", objects.__setitem__)
    growing = log._GrowingFile("gs://bucket/log.jsonl", b"1\n")
    for line, content in ((b"2\n", b"1\n2\n"), (b"3\n", b"1\n2\n3\n")):
        growing.append(line)
        assert objects == {"gs://bucket/log.jsonl": content}


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
