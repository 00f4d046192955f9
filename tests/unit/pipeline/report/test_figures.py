"""The report's curves, and the places of its artifacts."""

import json

import pytest
from matplotlib.figure import Figure

from pipeline.report import base_page
from pipeline.report.figures import curves
from pipeline.runs.run_dir import model_name


def log_line(kind, step, mlm_loss=5.0):
    return json.dumps({"kind": kind, "step": step, "mlm_loss": mlm_loss}) + "\n"


def test_repeated_steps_of_the_log_are_merged(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        log_line("train", 20, 6.0) + log_line("train", 40, 5.0) + log_line("train", 20, 5.5)
    )
    assert [(line["step"], line["mlm_loss"]) for line in curves.read_log(str(tmp_path))] == [(20, 5.5), (40, 5.0)]


def test_a_long_log_is_thinned(tmp_path):
    (tmp_path / "log.jsonl").write_text("".join(log_line("eval", step) for step in range(1, 1001)))
    steps = [line["step"] for line in curves.held_out(curves.read_log(str(tmp_path)))]
    assert len(steps) == 20 and steps[-1] == 1000 and steps[0] == 50
    # 900 points in groups of three: steps 0, 1, 2 and losses 0, 2, 4 first.
    points = curves._averaged([(step, 2.0 * step) for step in range(900)])
    assert len(points) == curves.MAX_POINTS and points[0] == (1.0, 2.0)


def test_the_loss_of_knowing_only_the_shares():
    # log(2), and -(0.6 log 0.6 + 0.4 log 0.4) = 0.6730
    assert curves._entropy(0.5) == pytest.approx(0.6931, abs=1e-4)
    assert curves._entropy(0.6) == pytest.approx(0.6730, abs=1e-4)
    assert curves._entropy(1.0) == 0.0


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/runs/demo/artifacts/Trainer/model/4", "artifacts/Trainer/model/4"),
        ("/runs/demo2/artifacts/Trainer/model/4", "…/Trainer/model/4"),
        ("gs://bucket/demo/artifacts/Trainer/model/4", "…/Trainer/model/4"),
        ("/home/someone/models/bert/", "bert"),
    ],
)
def test_paths_are_relative_to_the_run_directory(uri, shown):
    assert base_page._place(uri, "/runs/demo") == shown


def test_a_log_of_one_step_has_one_tick():
    curve = curves.Curve("mlm_loss", "Masked-LM loss", curves.plain)
    figure = Figure(figsize=(4.4, 2.5), layout="constrained")
    axes = figure.add_subplot()
    curves._draw(axes, curve, {curves.TRAIN: [(16, 1.8)], curves.HELD_OUT: [(16, 1.2)]})
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    assert [label.get_text() for label in axes.get_xticklabels() if low <= label.get_position()[0] <= high] == ["16"]


def test_the_label_of_the_dashed_line_is_above_the_picture():
    """A curve along its line, as of a model that learns nothing, would cross a label inside the picture."""
    figure = Figure(figsize=(4.4, 2.5), layout="constrained")
    axes = figure.add_subplot()
    curve = curves.Curve("mlm_loss", "Loss", curves.plain, reference=6.0, reference_label="unigram model")
    curves._draw(axes, curve, {"train": [(step, 6.01) for step in range(100)], "eval": []})
    figure.draw_without_rendering()
    (label,) = axes.texts
    assert label.get_text() == "unigram model 6"
    assert label.get_window_extent().y0 > axes.bbox.y1 and label.get_window_extent().y1 < figure.bbox.y1


@pytest.mark.parametrize(
    ("folder", "called"),
    [("/models/bert/", "bert"), ("runs/demo/serving/1", "demo/serving/1"), ("served/17", "served/17")],
)
def test_a_version_s_name_includes_its_model(folder, called):
    assert model_name(folder) == called
