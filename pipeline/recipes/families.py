"""The demo's recipe and those of Google's sizes, as another family's."""

from __future__ import annotations

import dataclasses
from typing import Any

from bert_keras.data.masking import MaskingSettings
from bert_keras.training.config import SecondPhase
from components.pretrain_example_gen.settings import ExampleSettings
from pipeline.recipes.bert import google, tiny_cpu
from pipeline.recipes.settings import GateSettings, Recipe

# What next tokens, spans and a small generator reach in the demo's time is below a whole BERT's masked LM.
_TINY_GATE = GateSettings(max_mlm_perplexity=300.0, min_mlm_accuracy=0.1)


def tiny(name: str, examples: dict[str, Any], masking: dict[str, Any], **changes: Any) -> Recipe:
    """The demo's recipe as another family's, with that family's masking."""
    demo = tiny_cpu()
    masked = MaskingSettings(**{"max_predictions_per_seq": 10, **masking})
    examples_ = dataclasses.replace(demo.examples, masking=masked, **examples)
    return dataclasses.replace(demo, **{"name": name, "examples": examples_, "gate": _TINY_GATE, **changes})


def published(
    name: str, layers: int, hidden: int, length: int, examples: dict[str, Any], masking: dict[str, Any], **changes: Any
) -> Recipe:
    """The recipe of one of Google's sizes as another family's: one phase, at one length; `changes` of its sections."""
    base = google(name, layers, hidden)
    sections: dict[str, Any] = {
        "examples": ExampleSettings(max_seq_length=length, masking=MaskingSettings(**masking), **examples),
        "second_phase": SecondPhase(),
    }
    for section, fields in changes.items():
        sections[section] = dataclasses.replace(getattr(base, section), **fields)
    return dataclasses.replace(base, **sections)
