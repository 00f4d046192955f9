"""keras-hub's preset folders of a `BertBackbone`, `RobertaBackbone` or `ElectraBackbone`, by its own code.

What its classes compute is fixed: BERT and ELECTRA have the approximate gelu, RoBERTa the exact one, and none another
epsilon than the published. Of the heads its `RobertaMaskedLM` alone is the same function; its `BertMaskedLM` has the
exact gelu and an epsilon of 1e-5 whatever the encoder has.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bert_keras.config import BertConfig, HiddenAct
from bert_keras.errors import InputError
from bert_keras.interchange import files, transfer, vocabularies
from bert_keras.interchange.architecture import Architecture, architecture_of
from bert_keras.interchange.names import Family, Part
from bert_keras.interchange.transfer import ReadModel, StoredTensor, Written
from bert_keras.interchange.vocabularies import Tokenizer, Vocabulary
from bert_keras.tokenizer import BertTokenizer

if TYPE_CHECKING:
    from bert_keras.interchange.architecture import Model

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
TOKENIZER_FILE = "tokenizer.json"
ASSETS = os.path.join("assets", "tokenizer")


class _Preset(NamedTuple):
    """What keras-hub's class of a family computes, and what its arguments are called."""

    backbone: str
    hidden_act: HiddenAct
    layer_norm_eps: float
    vocabulary_size: str = "vocabulary_size"
    has_segments: bool = True
    tokenizer: str = "BertTokenizer"
    masked_lm: str | None = None


_PRESETS: dict[Family, _Preset] = {
    "bert": _Preset("BertBackbone", "gelu_tanh", 1e-12),
    "electra": _Preset("ElectraBackbone", "gelu_tanh", 1e-12, "vocab_size", tokenizer="ElectraTokenizer"),
    "roberta": _Preset(
        "RobertaBackbone",
        "gelu_erf",
        1e-5,
        has_segments=False,
        tokenizer="RobertaTokenizer",
        masked_lm="RobertaMaskedLM",
    ),
}
# What it is called, and what it was called when its older presets were made.
_PACKAGES = ("keras_hub", "keras_nlp")
_FIELDS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
}


def read_keras_hub(directory: str) -> ReadModel:
    """Reads a preset: encoder, pooler, `RobertaMaskedLM`'s head and the tokenizer's vocabulary; weights as float32.

    Raises:
        InputError: keras-hub is not installed, a file is missing or damaged, the preset is of another class, or the
            vocabulary has not a token for each row of the word embeddings.
    """
    directory = os.path.abspath(directory)  # a bare name may be one of a preset that keras-hub would download
    config_path = os.path.join(directory, CONFIG_FILE)
    architecture = _read_architecture(config_path)
    preset = _PRESETS[architecture.family]
    vocabulary, settings = _read_vocabulary(directory, architecture)
    weights = os.path.join(directory, WEIGHTS_FILE)
    if not os.path.exists(weights):
        raise InputError(f"{weights} is not there; the folder of a preset has it")
    models = _keras_hub().models
    task = _task_class(directory)
    try:
        model = getattr(models, preset.backbone).from_preset(directory, dtype="float32")
        if task and task == preset.masked_lm:
            weights = os.path.join(directory, TASK_WEIGHTS_FILE)
            model = getattr(models, task)(model)
            model.load_task_weights(weights)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{weights}: is not the weights of {CONFIG_FILE} beside it ({reason})") from error
    found, initialised, remarks = transfer.read_model(
        architecture, "keras_hub", _stored(model, architecture, weights), weights
    )
    if task and task != preset.masked_lm:
        remarks += (f"the head of {task} is dropped: none here is the same function",)
    lower_case = settings.get("lowercase")
    if lower_case is not None and lower_case != settings.get("strip_accents", False):
        remarks += (f"{TOKENIZER_FILE} lower-cases or strips accents, not both; a BERT's tokenizer does both or none",)
    tokens, merges = (vocabulary.tokens, vocabulary.merges) if vocabulary else (None, None)
    return ReadModel(found, tokens, lower_case, initialised, merges, architecture.family, remarks)


def write_keras_hub(model: Model, tokenizer: Tokenizer | None, directory: str, family: Family | None = None) -> Written:
    """Writes a preset that keras-hub's `from_preset` loads: the backbone's, or `RobertaMaskedLM`'s.

    Segment 0 of a RoBERTa, whose every token has it, is added to the positions: keras-hub has no segments there.

    Args:
        model: its weights are written as float32.
        tokenizer: the model's; without one no tokenizer is written.
        family: what a `BertBackbone` is; by default a BERT.

    Raises:
        InputError: keras-hub is not installed or cannot compute the model (epsilon, segments), the tokenizer is of
            another kind than keras-hub's, the vocabulary has not a token for each row of the word embeddings, or the
            model is causal. Nothing is written.
    """
    architecture = architecture_of(model, family)
    config, preset = architecture.encoder, _PRESETS[architecture.family]
    vocabularies.check_tokenizer(tokenizer, config)
    remarks = _check_function(config, preset)
    models = _keras_hub().models
    their_tokenizer = _their_tokenizer(tokenizer, preset, models)
    hub = getattr(models, preset.backbone)(**_arguments(architecture), dtype="float32")
    if preset.masked_lm and hasattr(model, "mlm_head"):
        make = getattr(models, f"{preset.masked_lm}Preprocessor")
        preprocessor = their_tokenizer and make(their_tokenizer, sequence_length=config.max_position_embeddings)
        hub = getattr(models, preset.masked_lm)(hub, preprocessor)
    drawn = _assign(hub, model, architecture)
    with files.staged(directory) as temporary:
        hub.save_to_preset(temporary)
        if their_tokenizer:
            their_tokenizer.save_to_preset(temporary)
    if left_out := transfer.left_out(model, "keras_hub", architecture.family):
        remarks += (f"dropped: {', '.join(left_out)}; keras-hub has none of the same function",)
    return Written(drawn, remarks)


def _keras_hub() -> Any:
    try:
        import keras_hub
    except ImportError as error:
        raise InputError(f"keras-hub is not there ({error}): pip install 'bert-tfx[keras-hub]'") from error
    return keras_hub


def _read_architecture(path: str) -> Architecture:
    stored = files.read_json(path)
    families = {preset.backbone: family for family, preset in _PRESETS.items()}
    package, _, name = str(stored.get("registered_name")).partition(">")
    if package not in _PACKAGES or name not in families:
        known = ", ".join(f"keras_hub>{name}" for name in families)
        raise InputError(f"{path} is of the class {stored.get('registered_name')!r}; one of {known} can be read")
    family = families[name]
    preset, fields = _PRESETS[family], stored.get("config", {})
    names = {preset.vocabulary_size: "vocab_size", **_FIELDS}
    names |= {"num_segments": "type_vocab_size"} if preset.has_segments else {}
    names |= {"embedding_dim": "embedding_size"} if family == "electra" else {}
    if missing := names.keys() - fields.keys():
        raise InputError(f"{path}: config has no {min(missing)}; is the file whole?")
    # An object in it would be made by keras-hub, of whatever class it names.
    for at, objects, may_be in (("", stored, "config"), ("config.", fields, "dtype")):
        if nested := [name for name, value in objects.items() if isinstance(value, dict) and name != may_be]:
            raise InputError(f"{path}: {at}{nested[0]} is an object; that of an encoder has none there")
    values = {ours: fields[theirs] for theirs, ours in names.items()}
    width = values.pop("embedding_size", values["hidden_size"])
    values |= {"attention_probs_dropout_prob": values["hidden_dropout_prob"], "type_vocab_size": 1} | values
    try:
        config = BertConfig(**values, hidden_act=preset.hidden_act, layer_norm_eps=preset.layer_norm_eps)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    return Architecture(family, config, width)


def _read_vocabulary(directory: str, architecture: Architecture) -> tuple[Vocabulary | None, dict[str, Any]]:
    """The vocabulary, and the settings of a WordPiece tokenizer."""
    assets = os.path.join(directory, ASSETS)
    if architecture.family == "roberta":
        names = ("vocabulary.json", vocabularies.MERGES_FILE)
        return vocabularies.read_byte_bpe(assets, names, architecture.encoder, CONFIG_FILE), {}
    path = os.path.join(assets, "vocabulary.txt")
    tokens = vocabularies.read_wordpiece(path, architecture.encoder, CONFIG_FILE)
    settings = os.path.join(directory, TOKENIZER_FILE)
    fields = files.read_json(settings).get("config", {}) if os.path.exists(settings) else {}
    return Vocabulary(tokens) if tokens is not None else None, fields


def _task_class(directory: str) -> str | None:
    path = os.path.join(directory, TASK_FILE)
    return files.read_json(path).get("class_name") if os.path.exists(path) else None


def _stored(model: Any, architecture: Architecture, file: str) -> dict[str, StoredTensor]:
    """The weights of a loaded model of keras-hub by their names in the table, heads of an axis joined."""
    from keras import ops

    variables = {variable.path: variable for variable in model.weights}

    def stored(name: str, shape: tuple[int, ...]) -> StoredTensor:
        return StoredTensor(name, file, shape, lambda: ops.convert_to_numpy(variables[name]).reshape(shape))

    known = [(weight.keras_hub, weight.shape) for weight in architecture.weights() if weight.keras_hub]
    return {name.name: stored(name.name, shape) for name, shape in known if name.name in variables}


def _check_function(config: BertConfig, preset: _Preset) -> tuple[str, ...]:
    """InputError if keras-hub cannot compute the model at all; remarks where it does so nearly."""
    if config.layer_norm_eps != preset.layer_norm_eps:
        raise InputError(
            f"the model has layer_norm_eps {config.layer_norm_eps}, keras-hub's {preset.backbone} "
            f"{preset.layer_norm_eps} always; write it with --to hf"
        )
    if not preset.has_segments and config.type_vocab_size > 1:
        raise InputError(
            f"the model has {config.type_vocab_size} segments, keras-hub's {preset.backbone} none; "
            "write it with --to hf"
        )
    remarks: tuple[str, ...] = ()
    if config.hidden_act != preset.hidden_act:
        remarks += (
            f"keras-hub's {preset.backbone} computes {preset.hidden_act}, the model was trained with "
            f"{config.hidden_act} (at most 4.73e-4 apart): outputs differ",
        )
    if config.attention_probs_dropout_prob != config.hidden_dropout_prob:
        remarks += (
            f"keras-hub has one rate of dropout, {config.hidden_dropout_prob}: attention_probs_dropout_prob "
            f"{config.attention_probs_dropout_prob} is dropped",
        )
    return remarks


def _arguments(architecture: Architecture) -> dict[str, Any]:
    preset, config = _PRESETS[architecture.family], architecture.encoder
    arguments = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    arguments[preset.vocabulary_size] = config.vocab_size
    if preset.has_segments:
        arguments["num_segments"] = config.type_vocab_size
    if architecture.family == "electra":
        arguments["embedding_dim"] = architecture.embedding_size
    return arguments


def _their_tokenizer(tokenizer: Tokenizer | None, preset: _Preset, models: Any) -> Any:
    if tokenizer is None:
        return None
    if isinstance(tokenizer, BertTokenizer) == (preset.tokenizer == "RobertaTokenizer"):
        raise InputError(f"the vocabulary is not of the kind of keras-hub's {preset.tokenizer}; write it with --to hf")
    theirs, tokens = getattr(models, preset.tokenizer), tokenizer.vocabulary
    if isinstance(tokenizer, BertTokenizer):
        return theirs(list(tokens), lowercase=tokenizer.lower_case, strip_accents=tokenizer.lower_case)
    merges = [f"{left} {right}" for left, right in tokenizer.merges]
    return theirs({token: i for i, token in enumerate(tokens)}, merges)


def _assign(hub: Any, model: Model, architecture: Architecture) -> tuple[Part, ...]:
    """Gives a model of keras-hub our weights; returns the parts that it alone has, which are drawn."""
    from bert_keras.layers import initializer

    variables = {variable.path: variable for variable in hub.weights}
    tensors = transfer.tensors_of(model, "keras_hub", architecture.family)
    if architecture.family == "roberta":
        positions = "embeddings/position_embedding/embeddings"
        segment = np.asarray(transfer.variables_by_path(model)["bert/embeddings/token_type_embeddings/embeddings"])[0]
        # Adding zeros would make 0 of -0: the same number, but not the same bits.
        if segment.any():
            tensors[positions] = tensors[positions] + segment
    for name, value in tensors.items():
        variables[name].assign(value.reshape(variables[name].shape))
    drawn: tuple[Part, ...] = ()
    if "pooled_dense/kernel" in variables.keys() - tensors.keys():
        kernel, drawn = variables["pooled_dense/kernel"], ("pooler",)
        kernel.assign(initializer(architecture.encoder, 0)(kernel.shape))
    return drawn
