"""Settings of a run as frozen dataclasses, and their changes from the command line."""

import dataclasses
import difflib
import functools
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from bert_keras.errors import POSITIVE, SHARE, InputError, Rule, Settings, Share, at_least
from bert_keras.models.config import BertConfig
from bert_keras.objectives.settings import DistillationSettings, PretrainingSettings
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.training.config import SecondPhase, TrainingConfig
from components.corpus_gen.settings import CorpusSettings
from components.evaluator.settings import SliceSettings
from components.example_gate.limits import DataLimits
from components.pretrain_example_gen.settings import ExampleSettings
from components.serving_validator.limits import ServingLimits
from components.vocab_gen.settings import VocabularySettings
from pipeline.stages import PHASES

_Settings = typing.TypeVar("_Settings")
_NO_NAN = ConfigDict(allow_inf_nan=False)
_INCREASE = Rule(lambda increase: increase > -1, "above -1")


@dataclasses.dataclass(frozen=True)
class GateSettings(Settings, section="gate"):
    """Thresholds on the held-out split for a model to be blessed and pushed.

    Perplexity and accuracy are those of the masked tokens; for `left_to_right`, which masks nothing, of every next
    token, with a biLM also of every previous one; for ELECTRA of its generator. Metrics of ELECTRA's discriminator and
    of SpanBERT's span boundaries are reported, but not gated (`bert_keras.objectives.table`).

    Attributes:
        max_mlm_perplexity: maximum perplexity.
        min_mlm_accuracy: minimum accuracy.
        min_nsp_accuracy: minimum accuracy of next sentences, or of their order, for objectives with pairs.
        max_mlm_perplexity_increase: allowed relative increase against the last blessed model with the same vocabulary
            and lengths; a negative value requires an improvement.
        max_source_perplexity_increase: the same within each source of the text (`--corpus NAME=GLOB`), as each language
            of several; None: any.
        max_forgetting: for `--init` with `--reference-corpus`: allowed relative increase of the perplexity per word on
            that text, against the initial model (`components.evaluator.word_perplexity`); None: any.
        minimal_pairs: files of minimal pairs that the model is scored on (`components.evaluator.minimal_pairs`).
        min_minimal_pairs: minimum share of these pairs whose grammatical sentence is likelier; None: any.
        min_share_of_teacher: minimum accuracy of the masked tokens, as a share of the teacher's on the same examples
            (`--teacher`); None: any.
        allow_chance: lifts the floor of chance. Otherwise each figure above must also be better, by two standard
            errors, than without reading: the unigram model's perplexity, the share of the most frequent token, the
            share of the more frequent answer to "does B follow A?" (`components.evaluator.chance`).
    """

    max_mlm_perplexity: Annotated[float, at_least(1)] = 100.0
    min_mlm_accuracy: Share = 0.2
    min_nsp_accuracy: Share = 0.5
    max_mlm_perplexity_increase: Annotated[float, _INCREASE] = 0.0
    max_source_perplexity_increase: Annotated[float | None, _INCREASE] = None
    max_forgetting: Annotated[float | None, _INCREASE] = None
    minimal_pairs: tuple[str, ...] = ()
    min_minimal_pairs: Annotated[float | None, SHARE] = None
    min_share_of_teacher: Annotated[float | None, POSITIVE] = None
    allow_chance: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min_minimal_pairs is not None and not self.minimal_pairs:
            raise ValueError("gate.min_minimal_pairs needs pairs; give their files as gate.minimal_pairs")


def check_precision(export: ExportSettings, serving: ServingLimits) -> None:
    """Refuse a limit that other roundings than the trainer's cannot keep: of bfloat16, OpenVINO, int8."""
    for setting, least, example in (
        ("precision=mixed_bfloat16", 1e-3, 0.05),
        ("quantize=int8", 1e-3, 0.5),
        ("engine=onnx", 1e-4, 1e-3),
    ):
        name, value = setting.split("=")
        if getattr(export, name) == value and serving.max_difference < least:
            raise ValueError(
                f"serving.max_difference is {serving.max_difference:g}, below what export.{setting} rounds off; also "
                f"set serving.max_difference, to {example:g} for example"
            )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a pre-training; its text is given separately.

    The vocabulary has `model.vocab_size` tokens; `second_phase` is the last steps, on longer examples; `pretraining` is
    the model around the encoder. A recipe that `needs_init` only trains a model that exists (`--init`).
    """

    workflow: ClassVar[str] = "pretrain"
    name: str
    model: BertConfig = dataclasses.field(default_factory=BertConfig)
    corpus: CorpusSettings = dataclasses.field(default_factory=CorpusSettings)
    vocabulary: VocabularySettings = dataclasses.field(default_factory=VocabularySettings)
    examples: ExampleSettings
    data: DataLimits = dataclasses.field(default_factory=DataLimits)
    training: TrainingConfig
    gate: GateSettings = dataclasses.field(default_factory=GateSettings)
    second_phase: SecondPhase = dataclasses.field(default_factory=SecondPhase)
    pretraining: PretrainingSettings = dataclasses.field(default_factory=PretrainingSettings)
    distillation: DistillationSettings = dataclasses.field(default_factory=DistillationSettings)
    export: ExportSettings = dataclasses.field(default_factory=ExportSettings)
    serving: ServingLimits = dataclasses.field(default_factory=ServingLimits)
    slices: SliceSettings = dataclasses.field(default_factory=SliceSettings)
    needs_init: bool = False

    def __post_init__(self) -> None:
        check_precision(self.export, self.serving)
        if self.export.engine != "tensorflow":
            raise ValueError(
                f"export.engine={self.export.engine} is for `bert-tfx finetune`; convert a pre-trained model"
            )
        if self.examples.max_seq_length > self.model.max_position_embeddings:
            raise ValueError(
                f"examples.max_seq_length is {self.examples.max_seq_length}, above "
                f"model.max_position_embeddings, {self.model.max_position_embeddings}; give at most that"
            )
        if self.training.freeze_layers > self.model.weight_layers:
            raise ValueError(
                f"training.freeze_layers is {self.training.freeze_layers}, above the number of layers with weights of "
                f"their own (model.num_hidden_layers, model.shared_layers), {self.model.weight_layers}"
            )
        if self.model.embedding_width and self.pretraining.model_family == "electra":
            raise ValueError(
                "model.embedding_width is not for an ELECTRA, whose two encoders share the embeddings: set "
                "pretraining.embedding_size"
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
        wordpiece = self.vocabulary.algorithm == "wordpiece"
        self.pretraining.check(self.examples.objective, self.model, wordpiece=wordpiece)
        masking = self.examples.masking
        # What is stored masked.
        name, stored = "masked_lm_prob", masking
        if masking.when == "dynamic" and masking.held_out_prob:
            name, stored = "held_out_prob", masking.held_out
        fraction, low, high = stored.masked_lm_prob, self.data.min_masked_fraction, self.data.max_masked_fraction
        if self.examples.objective != "left_to_right" and not low <= fraction <= high:
            # Checked here, because the data gate would refuse the examples only after they are made.
            raise ValueError(
                f"examples.masking.{name} is {fraction}, but data.min_masked_fraction is {low} and "
                f"data.max_masked_fraction {high}: the data gate would refuse such examples; change both"
            )

    @property
    def pretraining_objective(self) -> str:
        """Name of the objective in `bert_keras.objectives.table`."""
        return self.pretraining.pretraining_objective(self.examples.objective, self.model)

    @property
    def example_sets(self) -> list[ExampleSettings]:
        """Settings of the examples of each phase; the model is evaluated on the last ones."""
        if not self.second_phase.num_train_steps:
            return [self.examples]
        predictions = self.second_phase.max_predictions_per_seq
        masking = dataclasses.replace(self.examples.masking, max_predictions_per_seq=predictions)
        long = dataclasses.replace(self.examples, max_seq_length=self.second_phase.max_seq_length, masking=masking)
        return [self.examples, long]

    @property
    def judged_phase(self) -> str:
        """The phase (`pipeline.stages.PHASES`) whose examples the model is evaluated on: the last."""
        return PHASES[len(self.example_sets) - 1]


def settings_of(recipe: Any) -> dict[str, object]:
    """Every setting that `--set` can change, with its value, by its dotted name."""
    return {key: functools.reduce(getattr, key.split("."), recipe) for key in _keys(recipe)}


def with_settings(
    recipe: _Settings, settings: Sequence[str], given: Mapping[str, object] = types.MappingProxyType({})
) -> _Settings:
    """Apply each `section.field=value` to a recipe (or another dataclass of settings), strictly.

    `given` are changes by their dotted names, which `settings` change again. InputError: an unknown key (names the
    nearest known one), a value of the wrong type, or one out of range.
    """
    known = _keys(recipe)
    changes: dict[str, object] = {**given}
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
            # Pydantic's message for a choice would repeat the choices.
            reason = "" if error.errors()[0]["type"] == "literal_error" else f"; {error.errors()[0]['msg']}"
            raise InputError(f"--set {setting}: {key} must be {_type_name(known[key])}{reason}") from error
    try:
        changed = _replace(recipe, changes)
    except ValueError as error:
        # Without settings `given` contradicts the recipe, as an initial model of few positions does.
        raise InputError(f"--set {' '.join(settings)}: {error}" if settings else str(error)) from error
    budget = getattr(getattr(changed, "training", None), "budget", None)
    if budget and "training.num_train_steps" in changes:
        raise InputError(
            f"training.budget is {budget}: it decides the number of steps; leave training.num_train_steps out, or set "
            "training.budget=None"
        )
    return changed


def _parse(annotation: Any, text: str) -> object:
    """Parse a value; a tuple is separated by commas, or empty."""
    if isinstance(annotation, types.UnionType):
        return None if text.strip().lower() in ("none", "null") else _parse(typing.get_args(annotation)[0], text)
    if typing.get_origin(annotation) is tuple:
        (item, _) = typing.get_args(annotation)
        return tuple(_parse(item, part) for part in text.split(",")) if text.strip() else ()
    return TypeAdapter(annotation, config=_NO_NAN).validate_strings(text.strip())


def _keys(value: Any, prefix: str = "") -> dict[str, Any]:
    types = typing.get_type_hints(type(value))
    keys: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        if dataclasses.is_dataclass(inner := getattr(value, field.name)):
            keys |= _keys(inner, f"{prefix}{field.name}.")
        elif prefix:  # the recipe's own name is not a setting
            keys[prefix + field.name] = types[field.name]
    return keys


def _replace(value: Any, changes: dict[str, object]) -> Any:
    """Replace the fields at dotted names all at once, so that checks run only on the result."""
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
    if isinstance(annotation, types.UnionType):
        return f"{_type_name(typing.get_args(annotation)[0])}, or None"
    return "one of " + ", ".join(map(str, typing.get_args(annotation)))
