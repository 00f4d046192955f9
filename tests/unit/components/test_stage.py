"""A stage's specification and the values that it gets."""

import dataclasses
import json

import pytest
from tfx.dsl.components.base import base_executor
from tfx.types import channel, standard_artifacts

from components.stage import Stage


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
