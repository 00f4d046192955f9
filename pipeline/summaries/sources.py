"""What a training read of each source of a mixture, as its settings say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bert_keras.training.mixed_examples import mixtures, source_figures
from bert_keras.training.phases import ExampleSet, phases_of
from pipeline.recipes.settings import Recipe


def read_by_source(folders: Sequence[str], recipe: Recipe) -> list[dict[str, Any]]:
    """The figures of each source (`bert_keras.training.mixed_examples.SourceFigures`) in each phase, by length.

    Empty if nothing is mixed. `folders` are the examples that the Trainer read.
    """
    examples = mixtures({folder: ExampleSet.load(folder) for folder in folders}, recipe.training)
    phases = phases_of(recipe.training, recipe.second_phase, examples)
    return [
        {"max_seq_length": example_set.max_seq_length, **figures._asdict()}
        for example_set in examples
        for figures in source_figures(phases, example_set)
        if len(example_set.sources) > 1
    ]


def source_line(sources: Sequence[Mapping[str, Any]]) -> str:
    """The sources on the screen: their shares, and how often each was read."""
    lengths = {source["max_seq_length"] for source in sources}
    return ", ".join(
        f"{source['name'] or 'corpus'} {source['share']:.1%}, read {source['read'] / source['one_pass']:.2g} times"
        + (f" in {source['max_seq_length']} tokens" if len(lengths) > 1 else "")
        for source in sources
    )
