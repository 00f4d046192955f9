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
# Values just outside of the range of a setting.
OUT_OF_RANGE = {
    (CorpusSettings, "corpus"): {"eval_fraction": (0.0, 1.0), "bucket_bytes": (0,)},
    (LeakSettings, "corpus.leaks"): {"ngram_words": (2,), "changed_words": (-1,), "min_words": (2,)},
    (PassageSettings, "corpus.passages"): {"window": (0,), "min_count": (1,), "keep": (-1,), "min_characters": (0,)},
    (QualitySettings, "corpus.quality"): {"gopher_min_words": (-1,), "repetition_max_top_ngrams": ((0.2, -1, 0.2),)},
    (VocabularySettings, "vocabulary"): {"min_word_count": (0,), "character_coverage": (0.0, 1.1)},
    (ExampleSettings, "examples"): {
        "max_seq_length": (4, 65_537),
        "dupe_factor": (0, 1001),
        "short_seq_prob": (-0.1, 1.1),
        "max_sequences_per_pack": (1, 256),
    },
    (DataLimits, "data"): {"min_documents": (0,), "max_unknown_fraction": (1.5,), "min_fill_fraction": (-0.1,)},
    (TaskDataSettings, "data"): {"eval_fraction": (0.0, 1.0), "max_train_rows": (-1,), "max_eval_rows": (-1,)},
    (Columns, "data.columns"): {"label": ("",)},
    (ServingLimits, "serving"): {field.name: (0,) for field in dataclasses.fields(ServingLimits)},
}
# Values that do not fit together, and wrong parts of a tuple or a text, with a part of the message.
REFUSED = [
    (LeakSettings, {"changed_words": 4}, "changed_words is 4; with corpus.leaks.ngram_words=13 it must be at most 3"),
    (QualitySettings, {"repetition_max_top_ngrams": (0.2,)}, "has 1 limits; it must have 3, for sequences of "),
    (QualitySettings, {"repetition_max_repeated_ngrams": ()}, "has 0 limits; it must have 6, for sequences of 5 "),
    (QualitySettings, {"c4_rules": ("policy", "cookies")}, "corpus.quality.c4_rules has cookies; choose from "),
    (PersonalDataSettings, {"phone_regions": "UK, de, XX"}, "corpus.personal_data.phone_regions has 'UK', 'XX'; "),
    (ExampleSettings, {"max_seq_length": 16}, "is 20; it must be at most examples.max_seq_length, 16"),
    (ExampleSettings, {"nsp": "balanced", "objective": "segment_pair"}, "examples.nsp is 'balanced', but "),
    (ExampleSettings, {"cut_sentences": True}, "examples.cut_sentences is true, but "),
    (ExampleSettings, {"packing": True, "objective": "full_sentences"}, "examples.packing is true, but rows of "),
    (ExampleSettings, {"objective": "left_to_right", "masking": DYNAMIC}, "masking.when is 'dynamic', but "),
    (DataLimits, {"min_random_next_fraction": 0.9}, "is 0.9; it must be at most data.max_random_next_fraction, 0.85"),
    (DataLimits, {"max_masked_fraction": 0.05}, "is 0.1; it must be at most data.max_masked_fraction"),
]


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        *(
            (kind, {name: value}, f"{section}.{name} is {value!r}; it must be ")
            for (kind, section), fields in OUT_OF_RANGE.items()
            for name, values in fields.items()
            for value in values
        ),
        *REFUSED,
    ],
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
