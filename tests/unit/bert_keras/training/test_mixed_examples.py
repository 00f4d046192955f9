"""Sets of examples that are mixed into those of a phase, and what a run reads of each source."""

import dataclasses

import pytest

from bert_keras.data.example_format import ExampleSpec, Shard
from bert_keras.data.mixture import Source
from bert_keras.errors import InputError
from bert_keras.training.config import SecondPhase, TrainingConfig
from bert_keras.training.mixed_examples import mixed, mixtures, source_figures, text_never_read
from bert_keras.training.phases import ExampleSet, phases_of

SPEC = ExampleSpec(128, 20, 1000, "", 500, 50)
GENERAL = [Shard("1", 0, 9, 0, "")]
TEXT = [Shard("0", 0, 1200, 0, "")]
NAMED = [Shard("2", 0, 300, 0, "", "books"), Shard("3", 0, 900, 0, "", "web"), Shard("4", 1, 900, 0, "", "web")]
BATCHES = TrainingConfig(train_batch_size=100, num_train_steps=12, num_warmup_steps=0)


def example_set(shards, **spec):
    return ExampleSet(dataclasses.replace(SPEC, **spec), shards, [])


def replay(shards=GENERAL, **spec):
    return example_set(shards, **{"replay": True, "eval_examples": 0} | spec)


def test_a_single_set_is_itself():
    examples = example_set(TEXT)
    assert mixed({"a": examples}, BATCHES) is examples and examples.sources == [Source("", TEXT)]


def test_replayed_examples_are_mixed_in_by_their_share():
    found = mixed({"a": example_set(TEXT), "b": replay()}, dataclasses.replace(BATCHES, replay_share=0.3))
    assert (found.mixture, found.spec) == ([Source("replay", GENERAL, 0.3), Source("", TEXT, 0.7)], SPEC)


def test_the_sources_share_what_replay_leaves():
    config = dataclasses.replace(BATCHES, source_weights=("books:3", "web:1"), replay_share=0.2)
    found = mixed({"a": example_set(NAMED), "b": replay()}, config)
    assert {source.name: source.weight for source in found.mixture} == pytest.approx(
        {"replay": 0.2, "books": 0.6, "web": 0.2}
    )
    assert [list(source.shards) for source in found.mixture] == [GENERAL, NAMED[:1], NAMED[1:]]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"vocabulary_sha256": "other"}, "the replayed examples have another layout or vocabulary"),
        ({"max_seq_length": 64}, "the replayed examples have another layout or vocabulary"),
        ({"train_examples": 0}, "--replay: no examples could be made of this text"),
    ],
)
def test_replayed_examples_that_do_not_fit_are_refused(spec, message):
    with pytest.raises(InputError, match=message):
        mixtures({"a": example_set(TEXT), "b": replay(**spec)}, BATCHES)


def test_sets_of_one_length_are_sources_named_by_their_folders():
    """The rows to train on and to hold out are those of both."""
    config = dataclasses.replace(BATCHES, source_weights=("news:1", "law:4"))
    law = dataclasses.replace(example_set(TEXT, train_examples=1200), eval_shards=[Shard("e", 0, 50, 0, "")])
    found = mixed({"/data/news": example_set(GENERAL, train_examples=9), "/data/law/": law}, config)
    assert found.mixture == [Source("news", GENERAL, 0.2), Source("law", TEXT, 0.8)]
    assert (found.train_examples, found.eval_examples, len(found.eval_shards)) == (1209, 100, 1)
    with pytest.raises(InputError, match="--examples: two of them are called news; rename a folder"):
        mixed({"/data/news": example_set(TEXT), "/more/news": example_set(TEXT)}, BATCHES)
    with pytest.raises(InputError, match="/data/news, /data/law have another layout or vocabulary"):
        mixed({"/data/news": example_set(TEXT), "/data/law": example_set(TEXT, vocabulary_sha256="other")}, BATCHES)


def test_a_source_is_read_at_its_rate():
    """300 examples of books at 9 times the rate of 900 of the web; another set with other rates is no other layout."""
    examples = example_set(NAMED, source_rates={"books": 9.0, "web": 1.0})
    found = mixed({"a": examples, "b": replay()}, dataclasses.replace(BATCHES, replay_share=0.2))
    assert {source.name: source.weight for source in found.mixture} == pytest.approx(
        {"replay": 0.2, "books": 0.6, "web": 0.2}
    )


def test_the_phases_are_the_lengths():
    """A second phase has its own sets, replayed ones too."""
    long = {"max_seq_length": 512}
    sets = {"d": replay(NAMED, **long), "b": example_set(NAMED, **long), "a": example_set(TEXT), "c": replay()}
    first, second = mixtures(sets, BATCHES)
    assert [source.name for source in first.mixture] == ["replay", ""] and first.max_seq_length == 128
    assert [source.name for source in second.mixture] == ["replay", "books", "web"] and second.max_seq_length == 512


def test_what_is_read_of_each_source():
    """Of 1,200 examples read 360 are replayed; books and web share 840 by 300 and 900 examples a pass."""
    config = dataclasses.replace(BATCHES, replay_share=0.3)
    examples = mixed({"a": example_set(NAMED), "b": replay()}, config)
    phases = phases_of(config, SecondPhase(0), [examples])
    figures = {name: (round(share, 6), *counts) for name, share, *counts in source_figures(phases, examples)}
    assert figures == {"replay": (0.3, 360, 9), "books": (0.175, 210, 300), "web": (0.525, 630, 900)}
    assert text_never_read(phases, examples) == (
        "210 examples of 128 tokens are read of books, and a pass over the documents has 300: 30% of the text is never "
        "seen; take more steps, larger batches or less text; 630 examples of 128 tokens are read of web, and a pass "
        "over the documents has 900: 30% of the text is never seen; take more steps, larger batches or less text"
    )


def test_replayed_examples_do_not_count_as_read_text():
    config = dataclasses.replace(BATCHES, replay_share=0.3)
    examples = mixed({"a": example_set(TEXT), "b": replay([Shard("1", 0, 999, 0, "")])}, config)
    found = text_never_read(phases_of(config, SecondPhase(0), [examples]), examples)
    assert found.startswith("840 examples of 128 tokens are read, and a pass over the documents has 1,200: 30% of")
    assert "replay" not in found  # general text need not be read to its end


def test_weights_without_numbers_are_refused():
    with pytest.raises(ValueError, match=r"training\.source_weights: 'web' must be NAME:NUMBER"):
        TrainingConfig(source_weights=("web",))
