"""keras-hub's preset folders of a `BertBackbone`, `RobertaBackbone` or `ElectraBackbone`, by its own code.

The functions of its classes are fixed: BERT and ELECTRA have the approximate gelu, RoBERTa the exact one, and all have
the published epsilon. Of its heads only `RobertaMaskedLM` is the same function; its `BertMaskedLM` has the exact gelu
and an epsilon of 1e-5, whatever the encoder has.
"""

import dataclasses
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras import files
from bert_keras.convert import weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, check_written
from bert_keras.convert.families.family import KerasHubClass, check_plain
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.families.weight import StoredTensor
from bert_keras.convert.model_folder import ModelFolder, Networks, Written, check_tokenizer
from bert_keras.convert.tensor_files.keras_files import check_hdf5
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenizers.protocol import Tokenizer, default_format
from bert_keras.tokenizers.tokenizer_files import check_fields
from bert_keras.tokenizers.vocabulary_files import Vocabulary
from bert_keras.tokenizers.wordpiece import BertTokenizer

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
TASK_FILE = "task.json"
TASK_WEIGHTS_FILE = "task.weights.h5"
TOKENIZER_FILE = "tokenizer.json"
ASSETS = os.path.join("assets", "tokenizer")
_CLASSES = {name: family.keras_hub for name, family in FAMILIES.items() if family.keras_hub}
# Its name, and its earlier name in older presets.
_PACKAGES = ("keras_hub", "keras_nlp")
_FIELDS = {
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "intermediate_dim": "intermediate_size",
    "max_sequence_length": "max_position_embeddings",
    "dropout": "hidden_dropout_prob",
}


def read_keras_hub(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read a preset: encoder, pooler, `RobertaMaskedLM`'s head and the tokenizer's vocabulary; weights as float32.

    InputError: keras-hub is not installed, a file is missing or damaged, or the preset has another class.
    """
    directory = os.path.abspath(directory)  # keras-hub would download a preset with a bare name
    architecture = _read_architecture(os.path.join(directory, CONFIG_FILE))
    vocabulary = _read_vocabulary(directory, architecture)
    preset, task_path = _CLASSES[architecture.family], os.path.join(directory, TASK_FILE)
    task = files.read_json(task_path).get("class_name") if os.path.exists(task_path) else None
    has_head = task is not None and task == preset.masked_lm
    weights = [os.path.join(directory, name) for name in (WEIGHTS_FILE, *([TASK_WEIGHTS_FILE] if has_head else []))]
    for path in weights:
        if not os.path.exists(path):
            raise InputError(f"{path} is missing; the folder of a preset needs it")
        check_hdf5(path)

    def load() -> Networks:
        file = weights[-1]
        model = _load(directory, preset, task, file)
        return weight_copy.read_model(architecture, "keras_hub", _stored(model, architecture, file), file)

    has_other_head = task is not None and not has_head
    return ModelFolder(
        architecture,
        load,
        lambda: vocabulary.tokenizer(directory, cased) if vocabulary else None,
        directory,
        notes=(f"the head of {task} is dropped: no head here is the same function",) if has_other_head else (),
    )


def _load(directory: str, preset: KerasHubClass, task: str | None, file: str) -> Any:
    models = _keras_hub().models
    try:
        model = getattr(models, preset.backbone).from_preset(directory, dtype="float32")
        if task and task == preset.masked_lm:
            model = getattr(models, task)(model)
            model.load_task_weights(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{file}: the weights do not fit {CONFIG_FILE} beside it ({reason})") from error
    return model


def write_keras_hub(folder: ModelFolder, directory: str) -> Written:
    """Write a preset that keras-hub's `from_preset` loads: the backbone's, or `RobertaMaskedLM`'s.

    A RoBERTa's embedding of segment 0, which all tokens have, is added to the positions: keras-hub has no segments.
    InputError, before anything is written: keras-hub is not installed, or cannot compute model or tokenizer.
    """
    model, tokenizer = folder.model, folder.tokenizer
    architecture = architecture_of(model, folder.family)
    check_written(architecture)
    check_plain(config := architecture.encoder, "keras-hub's presets")
    if architecture.family not in _CLASSES:
        raise InputError(f"keras-hub's presets cannot hold a model of {architecture.title}; write it with --to hf")
    preset = _CLASSES[architecture.family]
    check_tokenizer(tokenizer, config.vocab_size)
    remarks = _check_function(config, preset)
    models = _keras_hub().models
    their_tokenizer = _their_tokenizer(tokenizer, preset, models)
    arguments = {theirs: getattr(config, ours) for theirs, ours in _FIELDS.items()}
    arguments |= {preset.vocabulary_size: config.vocab_size}
    arguments |= {"num_segments": config.type_vocab_size} if preset.has_segments else {}
    arguments |= {"embedding_dim": architecture.embedding_size} if architecture.family == "electra" else {}
    hub = getattr(models, preset.backbone)(**arguments, dtype="float32")
    if preset.masked_lm and hasattr(model, "mlm_head"):
        make = getattr(models, f"{preset.masked_lm}Preprocessor")
        preprocessor = their_tokenizer and make(their_tokenizer, sequence_length=config.max_position_embeddings)
        hub = getattr(models, preset.masked_lm)(hub, preprocessor)
    untrained = _assign(hub, model, architecture)
    with files.staged(directory) as temporary:
        hub.save_to_preset(temporary)
        if their_tokenizer:
            their_tokenizer.save_to_preset(temporary)
    if left_out := weight_copy.left_out(model, "keras_hub", architecture.family):
        remarks += (f"dropped: {', '.join(left_out)}; keras-hub has no equivalent",)
    return Written(untrained, remarks)


def _keras_hub() -> Any:
    try:
        import keras_hub
    except ImportError as error:
        raise InputError(f"keras-hub is not installed ({error}): pip install 'bert-tfx[keras-hub]'") from error
    return keras_hub


def _read_architecture(path: str) -> Architecture:
    stored = files.read_json(path)
    families = {preset.backbone: family for family, preset in _CLASSES.items()}
    package, _, name = str(stored.get("registered_name")).partition(">")
    if package not in _PACKAGES or name not in families:
        known = ", ".join(f"keras_hub>{name}" for name in families)
        raise InputError(f"{path}: the class is {stored.get('registered_name')!r}; supported: {known}")
    family = families[name]
    preset, fields = _CLASSES[family], stored.get("config", {})
    names = {preset.vocabulary_size: "vocab_size", **_FIELDS}
    names |= {"num_segments": "type_vocab_size"} if preset.has_segments else {}
    names |= {"embedding_dim": "embedding_size"} if family == "electra" else {}
    if missing := names.keys() - fields.keys():
        raise InputError(f"{path}: config has no {min(missing)}; is the file complete?")
    # keras-hub would instantiate any class that a nested object names.
    for prefix, objects, allowed in (("", stored, "config"), ("config.", fields, "dtype")):
        if nested := [name for name, value in objects.items() if isinstance(value, dict) and name != allowed]:
            raise InputError(f"{path}: {prefix}{nested[0]} is an object, which is not allowed for an encoder")
    values = {ours: fields[theirs] for theirs, ours in names.items()}
    width = values.pop("embedding_size", values["hidden_size"])
    values |= {"attention_probs_dropout_prob": values["hidden_dropout_prob"], "type_vocab_size": 1} | values
    try:
        config = BertConfig(**values, hidden_act=preset.hidden_act, layer_norm_eps=preset.layer_norm_eps)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    return Architecture(family, config, width)


def _read_vocabulary(directory: str, architecture: Architecture) -> Vocabulary | None:
    assets, size = os.path.join(directory, ASSETS), architecture.encoder.vocab_size
    if _CLASSES[architecture.family].tokenizer == "RobertaTokenizer":
        names = ("vocabulary.json", vocabulary_files.MERGES_FILE)
        return vocabulary_files.read_byte_bpe(assets, names, size, CONFIG_FILE)
    vocabulary = vocabulary_files.read_wordpiece(os.path.join(assets, "vocabulary.txt"), size, CONFIG_FILE)
    path = os.path.join(directory, TOKENIZER_FILE)
    fields = files.read_json(path).get("config", {}) if os.path.exists(path) else {}
    check_fields(path, fields, {"split": (True,), "suffix_indicator": ("##",), "oov_token": ("[UNK]",)}, "config.")
    names_here = {"lowercase": "lower_case", "strip_accents": "strip_accents"}
    rules = {here: fields[there] for there, here in names_here.items() if there in fields}
    return dataclasses.replace(vocabulary, rules=rules) if vocabulary else None


def _stored(model: Any, architecture: Architecture, file: str) -> dict[str, StoredTensor]:
    """The weights of a keras-hub model by their names in the table, with the axis of attention heads merged."""
    from keras import ops

    variables = {variable.path: variable for variable in model.weights}

    def stored(name: str, shape: tuple[int, ...]) -> StoredTensor:
        return StoredTensor(name, file, shape, lambda: ops.convert_to_numpy(variables[name]).reshape(shape))

    known = [(weight.keras_hub, weight.shape) for weight in architecture.weights() if weight.keras_hub]
    return {name.name: stored(name.name, shape) for name, shape in known if name.name in variables}


def _check_function(config: BertConfig, preset: KerasHubClass) -> tuple[str, ...]:
    """Raise InputError if keras-hub cannot compute the model; return remarks on small differences."""
    if config.layer_norm_eps != preset.layer_norm_eps:
        raise InputError(
            f"the model has layer_norm_eps {config.layer_norm_eps}, keras-hub's {preset.backbone} always "
            f"{preset.layer_norm_eps}; write it with --to hf"
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


def _their_tokenizer(tokenizer: Tokenizer | None, preset: KerasHubClass, models: Any) -> Any:
    if tokenizer is None:
        return None
    known = ByteBpeTokenizer if preset.tokenizer == "RobertaTokenizer" else BertTokenizer
    if not isinstance(tokenizer, known) or tokenizer.format != default_format(tokenizer.algorithm):
        raise InputError(
            f"the vocabulary or its segments do not fit keras-hub's {preset.tokenizer}; write it with --to hf"
        )
    theirs, tokens = getattr(models, preset.tokenizer), tokenizer.vocabulary
    if isinstance(tokenizer, BertTokenizer):
        vocabulary_files.wordpiece(tokenizer, "keras-hub's presets", ("lower_case", "strip_accents"))
        rules = tokenizer.normalization
        return theirs(list(tokens), lowercase=rules.lower_case, strip_accents=rules.strip_accents)
    assert isinstance(tokenizer, ByteBpeTokenizer)
    merges = [f"{left} {right}" for left, right in tokenizer.merges]
    return theirs({token: i for i, token in enumerate(tokens)}, merges)


def _assign(hub: Any, model: "Model", architecture: Architecture) -> tuple[Part, ...]:
    """Assign our weights to a keras-hub model; return its parts that the model lacks."""
    from bert_keras.models.layers import initializer

    variables = {variable.path: variable for variable in hub.weights}
    tensors = weight_copy.tensors_of(model, "keras_hub", architecture.family)
    if architecture.family == "roberta":
        positions = "embeddings/position_embedding/embeddings"
        table = weight_copy.variables_by_path(model)["bert/embeddings/token_type_embeddings/embeddings"]
        segment = np.asarray(table)[0]
        # Adding zeros would turn -0 into 0 and so change the bits.
        if segment.any():
            tensors[positions] = tensors[positions] + segment
    for name, value in tensors.items():
        variables[name].assign(value.reshape(variables[name].shape))
    untrained: tuple[Part, ...] = ()
    if "pooled_dense/kernel" in variables.keys() - tensors.keys():
        kernel, untrained = variables["pooled_dense/kernel"], ("pooler",)
        kernel.assign(initializer(architecture.encoder, 0)(kernel.shape))
    return untrained
