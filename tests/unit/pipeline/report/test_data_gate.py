"""The report's rows of the data gate."""

import pytest

from pipeline.report.gate import data_rows


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
