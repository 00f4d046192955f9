"""Pages of most tests have equal curves: each is drawn once."""

import functools
import json

import pytest

from pipeline.report.figures import curves


@functools.cache
def _drawn(draw, curve, log):
    return draw(curve, json.loads(log))


@pytest.fixture(autouse=True)
def equal_curves_are_drawn_once(monkeypatch):
    draw = curves._picture
    monkeypatch.setattr(curves, "_picture", lambda curve, log: _drawn(draw, curve, json.dumps(log)))
