"""The report's curves, its rows of the data gate, its funnel, and the places of its artifacts."""

import json

import pytest
from matplotlib.figure import Figure

from pipeline.report import base_page
from pipeline.report.figures import curves
from pipeline.report.gate import data_rows
from pipeline.report.pretrain_page import funnel
from pipeline.runs.run_dir import model_name
from tests.support.pipeline.fabricated_run import Fabricated
from tests.support.pipeline.report_reading import check_stands_alone, words


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


def figure(value, minimum=None, maximum=None, name="some_fraction"):
    return {
        "name": name, "of": "examples", "label": "some", "value": value,
        "minimum": minimum, "maximum": maximum, "remedy": "do something",
    }  # fmt: skip


def test_evaluated_figures_in_words():
    rows = data_rows([figure(0.61, 0.4, 0.85), figure(None, 0.1), figure(1781, 20, name="documents")])
    assert [(row.label, row.value, row.wanted) for row in rows] == [
        ("some", "61%", "40% to 85%"),
        ("some", "1,781", "at least 20"),
    ]


@pytest.mark.parametrize(
    ("limits", "value", "places"),
    [
        # A scale ends a quarter beyond the upper limit, or at the figure.
        ({"maximum": 0.01}, 0.002, (0.0, 0.8, 0.16)),
        ({"minimum": 0.4, "maximum": 0.8}, 0.6, (0.4, 0.8, 0.6)),
        ({"minimum": 0.5}, 0.4, (0.8, 1.0, 0.64)),
        ({"minimum": 0.5}, 1.0, (0.5, 1.0, 1.0)),
        ({"maximum": 0.4}, 1.0, (0.0, 0.4, 1.0)),
        ({"maximum": 0.0}, 0.0, (0.0, 0.0, 0.0)),
        ({"maximum": 0.0}, 0.5, (0.0, 0.0, 1.0)),
    ],
)
def test_positions_on_a_figure_s_scale(limits, value, places):
    (row,) = data_rows([figure(value, **limits)])
    assert (row.low, row.high, row.at) == pytest.approx(places)


SPLIT = {"documents": 3, "bytes": 30_000, "duplicates": 0, "segments": 9}
CORPUS = {
    "train": SPLIT,
    "eval": SPLIT,
    "record": {
        "all": {
            "duplicates": {"documents": 2, "bytes": 20_000, "words": 2},
            "kept": {"documents": 6, "bytes": 60_000, "words": 6},
            "too_short": {"documents": 4, "bytes": 10_000, "words": 4},
        }
    },
}


def test_the_funnel_has_what_each_rule_left():
    rows = funnel(CORPUS)
    assert [(row.name, row.dropped, row.documents, row.size) for row in rows] == [
        ("read", 0, 12, 90_000),
        ("too_short", 4, 8, 80_000),
        ("duplicates", 2, 6, 60_000),
    ]
    assert [row.share for row in rows] == [1, 8 / 12, 6 / 12]


def test_the_page_shows_the_funnel(tmp_path, monkeypatch):
    fabricated = Fabricated(tmp_path / "run", monkeypatch)
    assert "Filters: what each rule dropped" not in words(fabricated.write())
    fabricated.file("documents", "corpus.json", json.dumps(CORPUS))
    html = fabricated.write()
    check_stands_alone(html)
    text = words(html)
    assert "too_short 4 8 0.08 MB" in text and "duplicates 2 6 0.06 MB" in text
