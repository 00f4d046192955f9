"""Examples of several sources as those of one phase, and the part of each source in a run."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bert_keras.data.example_format import ExampleSpec
from bert_keras.data.mixture import REPLAY, Source, examples_by_source, with_weights
from bert_keras.errors import InputError
from bert_keras.training.config import TrainingConfig
from bert_keras.training.phases import ExampleSet, Phase


def mixtures(examples: Mapping[str, ExampleSet], config: TrainingConfig) -> list[ExampleSet]:
    """The examples of each phase, the second phase's being the longer ones: those of one length are `mixed`."""
    lengths = sorted({one.max_seq_length for one in examples.values()})
    return [mixed({f: one for f, one in examples.items() if one.max_seq_length == T}, config) for T in lengths]


def mixed(examples: Mapping[str, ExampleSet], config: TrainingConfig) -> ExampleSet:
    """The examples of one length, mixed as the settings of a training say.

    A set has the sources that its shards name; without names it is a source, named by its folder if there are several
    sets. Replayed examples are the share `training.replay_share` of every batch, the sources share the rest.
    `examples`: sets of the same length by their folders, at least one that is not replayed. InputError: they differ in
    layout or vocabulary, two sources have a name, or a source is empty or has no weight.
    """
    replayed = [one for one in examples.values() if one.spec.replay]
    others = {folder: one for folder, one in examples.items() if not one.spec.replay}
    if not others or len({_layout(one.spec) for one in examples.values()}) > 1:
        which = "the replayed examples have" if replayed else f"{', '.join(examples)} have"
        raise InputError(f"{which} another layout or vocabulary: make them with the same settings")
    if any(not one.train_examples for one in replayed):
        raise InputError("--replay: no examples could be made of this text; give more")
    sources = [source for folder, one in others.items() for source in _sources(folder, one, alone=len(others) == 1)]
    names = [source.name for source in sources]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"--examples: two of them are called {twice[0]}; rename a folder")
    sources = with_weights(sources, config.source_numbers)
    first = next(iter(others.values()))
    if len(others) > 1:
        first = dataclasses.replace(
            first,
            spec=dataclasses.replace(
                first.spec,
                train_examples=sum(one.train_examples for one in others.values()),
                eval_examples=sum(one.eval_examples for one in others.values()),
            ),
            train_shards=[shard for one in others.values() for shard in one.train_shards],
            eval_shards=[shard for one in others.values() for shard in one.eval_shards],
        )
    if replayed:
        general = [shard for one in replayed for shard in one.train_shards]
        share = config.replay_share
        rest = [source._replace(weight=source.weight * (1 - share)) for source in sources]
        sources = [Source(REPLAY, general, share), *rest]
    return first if len(sources) == 1 else dataclasses.replace(first, mixture=sources)


def _layout(spec: ExampleSpec) -> ExampleSpec:
    return dataclasses.replace(spec, train_examples=0, eval_examples=0, replay=False)


def _sources(folder: str, examples: ExampleSet, *, alone: bool) -> list[Source]:
    shards = examples.train_shards
    unnamed = "" if alone else os.path.basename(folder.rstrip("/"))
    by_name = {name: [shard for shard in shards if shard.source == name] for name in sorted({s.source for s in shards})}
    rates = examples.spec.source_rates
    sources = [Source(name or unnamed, of_source, rates.get(name, 1.0)) for name, of_source in by_name.items()]
    return sources or [Source(unnamed, [])]


class SourceFigures(NamedTuple):
    """The part of a source that a run reads."""

    name: str
    share: float  # of every batch
    read: int  # number of its examples that are read
    one_pass: int  # number of its examples in a pass over its documents


def source_figures(phases: Sequence[Phase], examples: ExampleSet) -> list[SourceFigures]:
    """The part of each source of `examples` that `phases` read."""
    read = max((phase.examples_read(phase.end_step) for phase in phases if phase.examples is examples), default=0)
    weights = [source.weight for source in examples.sources]
    return [
        SourceFigures(source.name, source.weight / sum(weights), count, source.one_pass)
        for source, count in zip(examples.sources, examples_by_source(weights, read).tolist(), strict=True)
    ]


def text_never_read(phases: Sequence[Phase], examples: ExampleSet) -> str | None:
    """A warning if `phases` read some of a source of `examples`, but less than one pass over its documents."""
    warnings = [
        f"{found.read:,} examples of {examples.max_seq_length} tokens are read"
        f"{f' of {found.name}' if found.name else ''}, and a pass over the documents has {found.one_pass:,}: "
        f"{1 - found.read / found.one_pass:.0%} of the text is never seen; take more steps, larger batches or less text"
        for found in source_figures(phases, examples)
        if found.name != REPLAY and 0 < found.read < found.one_pass
    ]
    return "; ".join(warnings) or None
