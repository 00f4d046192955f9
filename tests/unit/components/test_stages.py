"""A stage's specification and values, and settings that are refused by name."""

import dataclasses
import json
import re

import pytest
from tfx.dsl.components.base import base_executor
from tfx.types import channel, standard_artifacts

from bert_keras.data.masking import MaskingSettings
from components.corpus_gen.settings import (
    CorpusSettings,
    LeakSettings,
    PassageSettings,
    PersonalDataSettings,
    QualitySettings,
)
from components.example_gate.limits import DataLimits
from components.pretrain_example_gen.settings import ExampleSettings
from components.serving_validator.limits import ServingLimits
from components.stage import Stage
from components.task_example_gen.settings import Columns, TaskDataSettings
from components.vocab_gen.settings import VocabularySettings

DYNAMIC = MaskingSettings(when="dynamic")
REFUSED = {
    CorpusSettings: [
        ({"eval_fraction": 0.0}, "corpus.eval_fraction is 0.0"),
        ({"eval_fraction": 1.0}, "corpus.eval_fraction is 1.0"),
        ({"bucket_bytes": 0}, "corpus.bucket_bytes is 0"),
    ],
    LeakSettings: [
        ({"ngram_words": 2}, "corpus.leaks.ngram_words is 2; it must be at least 3"),
        ({"changed_words": -1}, "corpus.leaks.changed_words is -1; it must be at least 0"),
        ({"min_words": 2}, "corpus.leaks.min_words is 2; it must be at least 3"),
        ({"changed_words": 4}, "changed_words is 4; with corpus.leaks.ngram_words=13 it must be at most 3"),
    ],
    PassageSettings: [
        ({"window": 0}, "corpus.passages.window is 0; it must be at least"),
        ({"min_count": 1}, "corpus.passages.min_count is 1; it must be at least"),
        ({"keep": -1}, "corpus.passages.keep is -1; it must be at least"),
        ({"min_characters": 0}, "corpus.passages.min_characters is 0; it must be at least"),
    ],
    QualitySettings: [
        ({"gopher_min_words": -1}, "corpus.quality.gopher_min_words is -1; it must be at least 0"),
        ({"repetition_max_top_ngrams": (0.2, -1, 0.2)}, "top_ngrams is (0.2, -1, 0.2); it must be at least 0"),
        ({"repetition_max_top_ngrams": (0.2,)}, "has 1 limits; it must have 3, for sequences of 2, 3, 4 words"),
        ({"repetition_max_repeated_ngrams": ()}, "has 0 limits; it must have 6, for sequences of 5 to 10 words"),
        ({"c4_rules": ("policy", "cookies")}, "corpus.quality.c4_rules has cookies; choose from citations, "),
    ],
    PersonalDataSettings: [
        ({"phone_regions": "UK, de, XX"}, "corpus.personal_data.phone_regions has 'UK', 'XX'; "),
    ],
    VocabularySettings: [
        ({"min_word_count": 0}, "vocabulary.min_word_count is 0"),
        ({"character_coverage": 0.0}, "vocabulary.character_coverage is 0.0"),
        ({"character_coverage": 1.1}, "vocabulary.character_coverage is 1.1"),
    ],
    ExampleSettings: [
        ({"max_seq_length": 4}, "max_seq_length is 4; it must be from 5 to 65536"),
        ({"max_seq_length": 65_537}, "max_seq_length is 65537"),
        ({"dupe_factor": 0}, "dupe_factor is 0; it must be from 1 to 1000"),
        ({"dupe_factor": 1001}, "dupe_factor is 1001"),
        ({"short_seq_prob": 1.1}, "short_seq_prob is 1.1; it must be in [0, 1]"),
        ({"short_seq_prob": -0.1}, "short_seq_prob is -0.1"),
        ({"max_sequences_per_pack": 1}, "max_sequences_per_pack is 1; it must be from 2 to 255"),
        ({"max_sequences_per_pack": 256}, "max_sequences_per_pack is 256"),
        ({"max_seq_length": 16}, "max_predictions_per_seq is 20; it must be at most examples.max_seq_length, 16"),
        (
            {"nsp": "balanced", "objective": "segment_pair"},
            "examples.nsp is 'balanced', but examples.objective 'segment_pair'",
        ),
        ({"cut_sentences": True}, "examples.cut_sentences is true, but "),
        (
            {"packing": True, "objective": "full_sentences"},
            "examples.packing is true, but rows of examples.objective 'full_sentences' are full",
        ),
        ({"objective": "left_to_right", "masking": DYNAMIC}, "examples.masking.when is 'dynamic', but "),
    ],
    DataLimits: [
        ({"min_documents": 0}, "data.min_documents is 0; it must be at least 1"),
        ({"max_unknown_fraction": 1.5}, "data.max_unknown_fraction is 1.5; it must be in [0, 1]"),
        ({"min_fill_fraction": -0.1}, "data.min_fill_fraction is -0.1; it must be in [0, 1]"),
        ({"min_random_next_fraction": 0.9}, "is 0.9; it must be at most data.max_random_next_fraction, 0.85"),
        ({"max_masked_fraction": 0.05}, "data.min_masked_fraction is 0.1; it must be at most data.max_masked_fraction"),
    ],
    TaskDataSettings: [
        ({"eval_fraction": 0.0}, "data.eval_fraction is 0.0; it must be between 0 and 1"),
        ({"eval_fraction": 1.0}, "data.eval_fraction is 1.0"),
        ({"max_train_rows": -1}, "data.max_train_rows is -1; it must be at least 0"),
        ({"max_eval_rows": -1}, "data.max_eval_rows is -1"),
    ],
    Columns: [({"label": ""}, "data.columns.label is ''; it must be a column's name")],
    ServingLimits: [
        ({name: 0}, f"serving.{name} is 0; it must be above 0")
        for name in ("max_latency_ms", "max_memory_mb", "max_load_seconds", "max_difference", "repetitions")
    ],
}


@pytest.mark.parametrize(
    ("kind", "values", "message"), [(kind, *refused) for kind, many in REFUSED.items() for refused in many]
)
def test_settings_out_of_range_are_refused_by_name(kind, values, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kind(**values)


class Executor(base_executor.EmptyExecutor):
    pass


@dataclasses.dataclass(frozen=True)
class Limits:
    rows: int = 3
    words: tuple[str, ...] = ("a", "ü")


class Counter(
    Stage,
    executor=Executor,
    inputs={"examples": standard_artifacts.Examples, "base": standard_artifacts.Model},
    parameters={"limits": str, "note": str, "steps": int},
    outputs={"model": standard_artifacts.Model},
    optional=("base", "note", "steps"),
):
    pass


EXAMPLES, MODEL = channel.Channel(type=standard_artifacts.Examples), channel.Channel(type=standard_artifacts.Model)


def test_values_by_position_and_by_name() -> None:
    stage = Counter(EXAMPLES, MODEL, Limits(), steps=4, note="as it is")
    assert set(stage.inputs) == {"examples", "base"} and stage.outputs["model"].type is standard_artifacts.Model
    assert stage.exec_properties["steps"] == 4 and stage.exec_properties["note"] == "as it is"
    assert json.loads(stage.exec_properties["limits"]) == {"rows": 3, "words": ["a", "ü"]}


def test_optional_values_may_be_left_out() -> None:
    stage = Counter(EXAMPLES, limits={"b": 1, "a": 2})
    assert set(stage.inputs) == {"examples"} and stage.exec_properties["limits"] == '{"a": 2, "b": 1}'
    assert Counter(EXAMPLES, limits="", note=None).exec_properties["note"] is None  # not JSON's null


def test_values_that_are_missing_unknown_too_many_or_given_twice_are_refused() -> None:
    with pytest.raises(ValueError, match="limits"):
        Counter(EXAMPLES)
    with pytest.raises(TypeError, match="Counter: colour: unknown"):
        Counter(EXAMPLES, limits="", colour="red")
    with pytest.raises(ValueError, match="argument"):
        Counter(EXAMPLES, MODEL, "", "", 4, "one more")
    with pytest.raises(TypeError, match="Counter: examples: unknown, or given twice"):
        Counter(EXAMPLES, limits="", examples=EXAMPLES)
