"""What a run is made of, as frozen dataclasses, and how a setting is changed from the command line."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bert_keras.config import BertConfig, ExportSettings, PretrainingSettings, SecondPhase, TrainingConfig
from bert_keras.errors import InputError
from components.corpus_gen.settings import CorpusSettings
from components.evaluator.settings import SliceSettings
from components.example_gate.limits import DataLimits
from components.pretrain_example_gen.settings import ExampleSettings
from components.serving_validator.limits import ServingLimits
from components.vocab_gen.settings import VocabularySettings

_Settings = typing.TypeVar("_Settings")


@dataclasses.dataclass(frozen=True)
class GateSettings:
    """What a model must reach on the held-out split to be blessed and pushed.

    The perplexity and the accuracy are of the masked tokens; where nothing is masked, for `left_to_right`, of every
    next token; of ELECTRA of what its generator fills in. What its discriminator reaches, and what SpanBERT's span
    boundaries tell, is measured and shown, not judged (`pipeline.objective_parts`).

    Attributes:
        max_mlm_perplexity: highest perplexity.
        min_mlm_accuracy: lowest accuracy.
        min_nsp_accuracy: lowest next-sentence accuracy, where next sentences are learned.
        max_mlm_perplexity_increase: how much higher its perplexity may be than that of the last blessed model that
            was made with the same vocabulary and lengths, as a share of it; negative asks for an improvement.
    """

    max_mlm_perplexity: float = 100.0
    min_mlm_accuracy: float = 0.2
    min_nsp_accuracy: float = 0.5
    max_mlm_perplexity_increase: float = 0.0

    def __post_init__(self) -> None:
        if self.max_mlm_perplexity < 1.0:
            raise ValueError(f"gate.max_mlm_perplexity is {self.max_mlm_perplexity}; it must be at least 1")
        for name in ("min_mlm_accuracy", "min_nsp_accuracy"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"gate.{name} is {getattr(self, name)}; it must be in [0, 1]")
        if self.max_mlm_perplexity_increase <= -1.0:
            raise ValueError(
                f"gate.max_mlm_perplexity_increase is {self.max_mlm_perplexity_increase}; it must be above -1"
            )


def check_precision(export: ExportSettings, serving: ServingLimits) -> None:
    """Refuses limits that a model in bfloat16 cannot keep: each graph of it rounds in another order."""
    if export.precision == "mixed_bfloat16" and serving.max_difference < 1e-3:
        raise ValueError(
            f"serving.max_difference is {serving.max_difference:g}, below what bfloat16 rounds off: with "
            "export.precision=mixed_bfloat16 also set serving.max_difference, to 0.05 for example"
        )


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Everything that decides what a pre-training run makes, but for the text itself.

    Attributes:
        name: which recipe function made it.
        model: the encoder.
        corpus: text -> documents.
        vocabulary: documents -> WordPiece (its size is `model.vocab_size`).
        examples: documents -> masked-LM / next-sentence examples, or others.
        data: what documents and examples must be to be trained on.
        training: examples -> model.
        second_phase: its last steps, on longer examples.
        gate: what a model must reach to be pushed.
        pretraining: which model the encoder is part of.
        export: how the model is written for serving.
        serving: what a server with the model must keep to for it to be pushed.
        slices: in which parts the held-out examples are measured, too.
    """

    name: str
    model: BertConfig
    corpus: CorpusSettings
    vocabulary: VocabularySettings
    examples: ExampleSettings
    data: DataLimits
    training: TrainingConfig
    gate: GateSettings
    second_phase: SecondPhase = dataclasses.field(default_factory=SecondPhase)
    pretraining: PretrainingSettings = dataclasses.field(default_factory=PretrainingSettings)
    export: ExportSettings = dataclasses.field(default_factory=ExportSettings)
    serving: ServingLimits = dataclasses.field(default_factory=ServingLimits)
    slices: SliceSettings = dataclasses.field(default_factory=SliceSettings)

    def __post_init__(self) -> None:
        check_precision(self.export, self.serving)
        if self.examples.max_seq_length > self.model.max_position_embeddings:
            raise ValueError(
                f"examples.max_seq_length is {self.examples.max_seq_length}, above "
                f"model.max_position_embeddings, {self.model.max_position_embeddings}"
            )
        second = self.second_phase
        if second.num_train_steps:
            if second.num_train_steps >= self.training.num_train_steps:
                raise ValueError(
                    f"second_phase.num_train_steps is {second.num_train_steps}; it must be below "
                    f"training.num_train_steps, {self.training.num_train_steps}, which counts both phases"
                )
            if not self.examples.max_seq_length < second.max_seq_length <= self.model.max_position_embeddings:
                raise ValueError(
                    f"second_phase.max_seq_length is {second.max_seq_length}; it must be above "
                    f"examples.max_seq_length, {self.examples.max_seq_length}, and at most "
                    f"model.max_position_embeddings, {self.model.max_position_embeddings}"
                )
        if problem := self.pretraining.problem(self.examples.objective, self.model.causal):
            raise ValueError(problem)
        if self.vocabulary.algorithm != "wordpiece":
            raise ValueError(
                f"vocabulary.algorithm is {self.vocabulary.algorithm!r}, which cannot be trained on yet, only "
                "'wordpiece'"
            )
        asked, least, most = (
            self.examples.masking.masked_lm_prob,
            self.data.min_masked_fraction,
            self.data.max_masked_fraction,
        )
        if self.learned != "left_to_right" and not least <= asked <= most:
            # Told now, and not when the examples are made.
            raise ValueError(
                f"examples.masking.masked_lm_prob is {asked}, but data.min_masked_fraction is {least} and "
                f"data.max_masked_fraction {most}: examples so made would not be trained on; change both"
            )

    @property
    def learned(self) -> str:
        """The objective, by its name in `bert_keras.objectives`."""
        return self.pretraining.learned(self.examples.objective)

    @property
    def example_sets(self) -> list[ExampleSettings]:
        """How the examples of each phase are made; the last ones are those that the model is judged on."""
        if not self.second_phase.num_train_steps:
            return [self.examples]
        predictions = self.second_phase.max_predictions_per_seq
        masking = dataclasses.replace(self.examples.masking, max_predictions_per_seq=predictions)
        long = dataclasses.replace(self.examples, max_seq_length=self.second_phase.max_seq_length, masking=masking)
        return [self.examples, long]


_NO_NAN = ConfigDict(allow_inf_nan=False)


def settings_of(recipe: Any) -> dict[str, object]:
    """Every setting that `--set` can change, by its dotted name, and its value."""
    return {key: functools.reduce(getattr, key.split("."), recipe) for key in _keys(recipe)}


def with_settings(recipe: _Settings, settings: Sequence[str]) -> _Settings:
    """The recipe (or another dataclass of settings) with each `section.field=value` applied, strictly.

    Raises:
        InputError: an unknown key (names the nearest right one), a value of the wrong type, or one out of range.
    """
    known = _keys(recipe)
    changes: dict[str, object] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        key = key.strip()
        if not equals or key not in known:
            near = difflib.get_close_matches(key, known, n=1, cutoff=0.0)[0]
            problem = f"{key} is not a setting" if equals else "is not section.field=value"
            raise InputError(f"--set {setting}: {problem}; the nearest one is {near}")
        try:
            changes[key] = _parse(known[key], text)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise InputError(f"--set {setting}: {key} is {_type_name(known[key])}; {reason}") from error
    try:
        return _replace(recipe, changes)
    except ValueError as error:
        raise InputError(f"--set {' '.join(settings)}: {error}") from error


def _parse(annotation: Any, text: str) -> object:
    """The value of a type that a text says; of a tuple with commas between, or nothing for an empty one."""
    if typing.get_origin(annotation) is tuple:
        (item, _) = typing.get_args(annotation)
        return tuple(_parse(item, part) for part in text.split(",")) if text.strip() else ()
    return TypeAdapter(annotation, config=_NO_NAN).validate_strings(text.strip())


def _keys(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted names of the settings below a dataclass, and their types."""
    types = typing.get_type_hints(type(value))
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        inner = getattr(value, field.name)
        if dataclasses.is_dataclass(inner):
            keys |= _keys(inner, f"{prefix}{field.name}.")
        elif prefix:  # the recipe's own name is none
            keys[prefix + field.name] = types[field.name]
    return keys


def _replace(value: Any, changes: dict[str, object]) -> Any:
    """`value` with the fields at dotted names changed, all at once: checks see the whole."""
    fields: dict[str, Any] = {}
    below: dict[str, dict[str, object]] = {}
    for key, new in changes.items():
        name, dot, rest = key.partition(".")
        if dot:
            below.setdefault(name, {})[rest] = new
        else:
            fields[name] = new
    fields |= {name: _replace(getattr(value, name), inner) for name, inner in below.items()}
    return dataclasses.replace(value, **fields)


def _type_name(annotation: object) -> str:
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    if annotation in names:
        return names[annotation]  # type: ignore[index]
    if typing.get_origin(annotation) is tuple:
        return f"{_type_name(typing.get_args(annotation)[0])}, or several with commas between"
    return "one of " + ", ".join(map(str, typing.get_args(annotation)))
