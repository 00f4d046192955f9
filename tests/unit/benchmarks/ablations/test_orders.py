"""The ablations' orders, tables and pictures."""

import dataclasses
import math

import pytest

from benchmarks.ablations.experiment import AblationExperiment, Arm, Column
from benchmarks.ablations.plot import draw
from benchmarks.ablations.significance import Order, Summary, orders_of, sentences
from benchmarks.ablations.table import page

ARMS = (Arm("A", paper={"X": 90.0, "P": 4.0}), Arm("B", paper={"X": 80.0, "P": 5.0}), Arm("C", paper={"X": 80.0}))
EXPERIMENT = AblationExperiment(
    "try",
    "A try",
    ("arm",),
    ARMS,
    (Column("X", "accuracy", "x"), Column("P", "perplexity", higher_is_better=False), Column("Y", "f1", "y")),
    claims=(("C", "A"),),
    notes=("A note.",),
)


def test_a_summary_by_hand():
    assert Summary.of([1.0, 2.0, 3.0]) == Summary(2.0, 1.0, 3)
    assert Summary.of([1.0, 2.0, 3.0]).squared_error == pytest.approx(1 / 3)
    assert Summary.of([5.0]) == Summary(5.0, None, 1)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        # Standard error of the difference: the root of 1/3 + 1/3, .8165; twice that is 1.633.
        ([3.7, 4.7, 5.7], "holds"),
        ([3.6, 4.6, 5.6], "inconclusive"),
        ([0.4, 1.4, 2.4], "inconclusive"),
        ([0.3, 1.3, 2.3], "reversed"),
    ],
)
def test_an_order_is_told_beyond_two_standard_errors(ours, verdict):
    (of_b, _) = orders_of(
        EXPERIMENT, EXPERIMENT.columns[0], {("A", "X"): ours, ("B", "X"): [2.0, 3.0, 4.0], ("C", "X"): [0.0, 1.0]}
    )
    assert (of_b.better.name, of_b.worse.name, of_b.paper) == ("A", "B", 10.0)
    assert of_b.error == pytest.approx((2 / 3) ** 0.5) and of_b.verdict == verdict


def test_equal_figures_of_the_paper_are_no_order_and_lower_perplexities_are_better():
    figures = {(arm, "X"): [1.0, 2.0] for arm in "ABC"} | {("A", "P"): [7.0, 7.1], ("B", "P"): [6.0, 6.1]}
    assert [(o.better.name, o.worse.name) for o in orders_of(EXPERIMENT, EXPERIMENT.columns[0], figures)] == [
        ("A", "B"),
        ("A", "C"),
    ]
    (order,) = orders_of(EXPERIMENT, EXPERIMENT.columns[1], figures)
    assert (order.by, order.paper, order.verdict) == (pytest.approx(-1.0), 1.0, "reversed")


def test_without_figures_of_the_paper_its_claims_are_the_orders():
    figures = {("C", "Y"): [60.0, 61.0, 62.0], ("A", "Y"): [50.0, 51.0, 52.0]}
    (order,) = orders_of(EXPERIMENT, EXPERIMENT.columns[2], figures)
    assert (order.better.name, order.paper, order.verdict) == ("C", None, "holds")
    assert Order(ARMS[0], ARMS[1], 50.0, math.inf, None).verdict == "inconclusive"


def test_the_page_says_what_is_reversed_and_what_is_missing():
    figures = {("A", "X"): [50.0, 50.2], ("B", "X"): [60.0, 60.2], ("C", "X"): [50.0, 50.2], ("A", "P"): [7.0]}
    text = page(EXPERIMENT, figures, {"scale": "tiny"}, "picture.svg", 1)
    assert "| arm | X, paper | ours | P, paper | ours | Y |" in text
    assert "| A | 90 | 50.1 ± 0.1 | 4 | 7.0 |  |" in text and "| C | 80 | 50.1 ± 0.1 |  |  |  |" in text
    assert "No data for Y: " in text and "- A note." in text and "- scale: tiny" in text
    assert sentences(EXPERIMENT, figures) == [
        "X, 2 orders of the paper: 0 holds, 1 inconclusive, 1 reversed; "
        "**reversed**: A over B by -10.00 (standard error 0.14; the paper by +10)."
    ]
    assert sentences(EXPERIMENT, {("A", "X"): [50.0], ("B", "X"): [60.0]}) == [
        "X: one figure per arm, so orders are inconclusive."
    ]


@pytest.mark.parametrize("x_label", ["", "steps"])
def test_the_picture_has_every_arm_and_is_the_same_every_time(tmp_path, x_label):
    columns = tuple(dataclasses.replace(column, x=float(x)) for x, column in enumerate(EXPERIMENT.columns))
    experiment = dataclasses.replace(EXPERIMENT, x_label=x_label, columns=columns)
    figures = {(arm, "X"): [50.0 + n, 50.2 + 2 * n] for n, arm in enumerate("ABC")}
    for name in ("one.svg", "two.svg"):
        draw(experiment, figures, str(tmp_path / name))
    one, two = ((tmp_path / name).read_text() for name in ("one.svg", "two.svg"))
    assert one == two and all(f">{arm}</text>" in one for arm in "ABC")
    assert ("the paper's" in one) == (not x_label) and ("steps" in one) == bool(x_label)
