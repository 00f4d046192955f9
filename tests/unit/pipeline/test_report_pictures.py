"""The report's curves and its lineage drawing."""

import json
import re

import pytest

from pipeline.report import curves, lineage_graph, pretrain_lineage, task_lineage


def log_line(kind, step, mlm_loss=5.0):
    return json.dumps({"kind": kind, "step": step, "mlm_loss": mlm_loss}) + "\n"


def test_a_step_that_was_trained_twice_counts_once(tmp_path):
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


PLANS = {
    f"{name}-{layout.name}": (layout, edges)
    for name, layouts, edges in (
        ("pretrain", pretrain_lineage.LAYOUTS, pretrain_lineage.EDGES),
        ("task", task_lineage.LAYOUTS, task_lineage.EDGES),
        ("search", task_lineage.LAYOUTS_WITH_SEARCH, task_lineage.EDGES_WITH_SEARCH),
    )
    for layout in layouts
}


@pytest.mark.parametrize(("layout", "edges"), PLANS.values(), ids=PLANS)
def test_boxes_and_arrows_fit_the_drawing(layout, edges):
    nodes = [lineage_graph.Node(key, key, "", None, []) for key in layout.places]
    drawing = lineage_graph.draw(nodes, layout, edges)
    width, height = drawing.box_width, lineage_graph.BOX_HEIGHT
    places = {node.key: (x, y) for node, x, y in drawing.boxes}
    assert len(set(places.values())) == len(nodes) == len({key for edge in edges for key in edge})
    assert all(x + width < drawing.width and y + height < drawing.height for x, y in places.values())
    for edge, arrow in zip(edges, drawing.arrows, strict=True):
        start, *_, end = [tuple(map(int, point.split(","))) for point in re.findall(r"\d+,\d+", arrow)]
        for key, (x, y) in zip(edge, (start, end), strict=True):
            left, top = places[key]
            # The middle of one of the box's four sides.
            assert (x - left, y - top) in [(0, height / 2), (width, height / 2), (width / 2, 0), (width / 2, height)]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("/runs/demo/artifacts/Trainer/model/4", "artifacts/Trainer/model/4"),
        ("/runs/demo2/artifacts/Trainer/model/4", "…/Trainer/model/4"),
        ("gs://bucket/demo/artifacts/Trainer/model/4", "…/Trainer/model/4"),
    ],
)
def test_places_are_relative_to_the_run(uri, shown):
    assert lineage_graph.relative(uri, "/runs/demo") == shown
