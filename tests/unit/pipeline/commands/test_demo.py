"""`bert-tfx demo`: its request to the served model."""

from types import SimpleNamespace

import numpy as np
import pytest
import typer

from pipeline.cli import app
from pipeline.commands.demo import DEMO_SENTENCE, DEMO_TEXT, _ask
from pipeline.runners import local


def test_without_new_text_nothing_is_served(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "run", lambda request: {"blessed": False, "served_version": 1, "new_text": False})
    typer.main.get_command(app)(["demo", "--run-dir", str(tmp_path), "--init", "latest"], standalone_mode=False)


@pytest.mark.parametrize(
    ("signatures", "told"),
    [
        (["encode", "fill_mask"], [DEMO_SENTENCE, "  array                 50.00%"]),
        (["encode"], [DEMO_TEXT, "  encoded as 9 vectors of 32 numbers, one per token"]),
    ],
)
def test_a_mask_is_filled_by_a_model_that_fills_masks(signatures, told, capsys):
    client = SimpleNamespace(
        metadata=lambda: dict.fromkeys(signatures),
        fill_mask=lambda texts: [[[("array", 0.5)]]],
        encode=lambda texts: {"sequence_output": np.zeros((len(texts), 9, 32))},
    )
    _ask(client, "[MASK]")
    assert capsys.readouterr().out.splitlines() == told
