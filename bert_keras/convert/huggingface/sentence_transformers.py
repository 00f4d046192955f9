"""The files with which a Hugging Face folder is a model of sentence-transformers: how a text gets one vector.

`modules.json` lists modules: the encoder in the folder itself, then `Pooling`, then perhaps `Normalize`. A
cross-encoder is a class with a head for pairs, one module (none before version 5.4), and what it applies to logits.
"""

import json
import os
from typing import Any

from bert_keras import files
from bert_keras.errors import InputError
from bert_keras.saved_model.settings import NO_EMBEDDING, EmbeddingSettings
from bert_keras.tokenizers.protocol import WORDPIECE
from bert_keras.tokenizers.tokenizer_files import check_fields, refuse, unknown_fields
from bert_keras.tokenizers.vocabulary_files import LENGTH, TOKENIZER_FILE, Vocabulary, read_settings

MODULES_FILE = "modules.json"
# Of the encoder's settings the first file that exists is read.
_SETTINGS_FILES = tuple(f"sentence_{kind}_config.json" for kind in ("bert", "roberta", "distilbert", "albert"))
_PROMPT_FILE = "config_sentence_transformers.json"
_POOLING_FILE = "config.json"
_MODULES = "sentence_transformers.models."
# By the name of their switch in the pooling's file, in which version 5 has one `pooling_mode` instead.
_SWITCHES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}

# Supported values of the encoder's settings (version 6.2), and settings that change no vector.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "do_lower_case": (True, False),
    "transformer_task": ("feature-extraction", "sequence-classification"),
    "modality_config": tuple(
        {"text": {"method": "forward", "method_output_name": name}} for name in ("last_hidden_state", "logits")
    ),
    "module_output_name": ("token_embeddings", "scores"),
    **dict.fromkeys(("processing_kwargs", "config_args", "config_kwargs", "tokenizer_args", "processor_kwargs"), ({},)),
    **dict.fromkeys(("query_length", "document_length", "query_expansion", "tokenizer_name_or_path"), ()),
}
_HARMLESS = ("max_seq_length", "model_args", "model_kwargs", "backend", "unpad_inputs")
# What a cross-encoder applies to its logits, by torch's names.
ACTIVATIONS = {"identity": "torch.nn.modules.linear.Identity", "sigmoid": "torch.nn.modules.activation.Sigmoid"}
# Where `config.json` has it, in `activation_fn` of the first, or before version 4; since 5.4 `_PROMPT_FILE` does.
_CONFIG_FIELD, _OLD_FIELD = "sentence_transformers", "sbert_ce_default_activation_function"
_REMEDY = f"remove {MODULES_FILE} to convert the encoder alone"


def read_embedding(directory: str, positions: int) -> tuple[EmbeddingSettings, tuple[str, ...]]:
    """Read how texts get their vectors, with a remark if it is in a way that `embed` does not have.

    `positions`: the tokens that the encoder reads. InputError: a file is not what sentence-transformers writes.
    """
    path = os.path.join(directory, MODULES_FILE)
    if not os.path.exists(path):
        return NO_EMBEDDING, ()
    try:
        modules = [(module["type"].rsplit(".", 1)[-1], module["path"]) for module in json.loads(files.read_text(path))]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path} is not a list of modules with type and path; copy it again") from error
    kinds = [kind for kind, _ in modules]
    if modules and modules[0][1]:
        raise InputError(f"{path}: path of {kinds[0]} is {modules[0][1]!r}; supported: '', the folder itself")
    if kinds == ["Transformer"] and _prompt_fields(directory)[1].get("model_type") == "CrossEncoder":
        return NO_EMBEDDING, _remarks(directory, "CrossEncoder")
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        return NO_EMBEDDING, (_not_read(directory, f"its modules are {', '.join(kinds) or 'none'}"),)
    pooling_path = os.path.join(directory, modules[1][1], _POOLING_FILE)
    fields = files.read_json(pooling_path)
    mode = fields.get("pooling_mode")
    if mode is None:
        switches = [name for name, value in fields.items() if name.startswith("pooling_mode_") and value]
        mode = "+".join(_SWITCHES.get(name, name) for name in switches) or "none"
    if mode not in ("mean", "cls"):
        return NO_EMBEDDING, (_not_read(directory, f"its pooling is {mode}"),)
    path, settings = _settings(directory)
    longest, field = settings.get("max_seq_length"), "max_seq_length"
    if longest is None:  # version 6 writes only the tokenizer's
        path, field = os.path.join(directory, TOKENIZER_FILE), LENGTH
        longest = read_settings(directory).get(field)
    longest = positions if longest is None else longest
    if not isinstance(longest, (int, float)) or longest < 3:
        raise InputError(f"{path}: {field} is {longest!r}; it must be a number of tokens, 3 or more")
    limit = int(longest) if longest < positions else 0
    return EmbeddingSettings("cls" if mode == "cls" else "mean", len(kinds) == 3, limit), _remarks(directory)


def lower_cased(directory: str, vocabulary: Vocabulary, rules: dict[str, Any]) -> dict[str, Any]:
    """The rules of a folder's tokenizer, or, if the model lower-cases before it, those of both.

    `rules`: result of `read_rules`. InputError: a setting asks for another text or vector than `embed` gives.
    """
    path, settings = _settings(directory)
    if not settings.get("do_lower_case"):
        return rules
    if vocabulary.algorithm != WORDPIECE:
        refuse(path, "do_lower_case", True, "false, or a WordPiece vocabulary", _REMEDY)
    if rules.get("lower_case"):
        return rules
    return {**rules, "lower_case": True, "strip_accents": bool(rules.get("strip_accents"))}


def _settings(directory: str) -> tuple[str, dict[str, Any]]:
    """The file of the encoder's settings, and its fields; none in another folder than sentence-transformers'."""
    paths = [os.path.join(directory, name) for name in _SETTINGS_FILES]
    path = next(filter(os.path.exists, paths), paths[0])
    fields = {}
    if os.path.exists(os.path.join(directory, MODULES_FILE)) and os.path.exists(path):
        fields = files.read_json(path)
        check_fields(path, fields, _SUPPORTED, remedy=_REMEDY)
    return path, fields


def _prompt_fields(directory: str) -> tuple[str, dict[str, Any]]:
    path = os.path.join(directory, _PROMPT_FILE)
    return path, files.read_json(path) if os.path.exists(path) else {}


def read_activation(directory: str, fields: dict[str, Any], is_choice: bool) -> str | None:
    """Read the activation of logits (`ACTIVATIONS`), "" if the folder does not say it; None: it is no cross-encoder.

    `fields`: of `config.json`. `is_choice`: whether its answer is one of several labels, which have a softmax here.
    InputError: it is another function.
    """
    path, later = _prompt_fields(directory)
    if later.get("model_type") == "CrossEncoder":
        function = later.get("activation_fn")
    elif _CONFIG_FIELD in fields or _OLD_FIELD in fields:
        path = os.path.join(directory, "config.json")
        function = (fields.get(_CONFIG_FIELD) or {}).get("activation_fn") or fields.get(_OLD_FIELD)
    else:
        return None
    known = {function: name for name, function in ACTIVATIONS.items() if name == "identity" or not is_choice}
    if function not in (None, *known):
        remedy = "remove it, and apply it to the scores yourself"
        refuse(path, "the activation of the cross-encoder", function, " or ".join(known), remedy)
    return known.get(function or "", "")


def _remarks(directory: str, kind: str = "SentenceTransformer") -> tuple[str, ...]:
    """Remarks on prompts and unknown fields; InputError if a prompt is put before every text."""
    path, settings = _settings(directory)
    remarks = unknown_fields(path, settings, (*_SUPPORTED, *_HARMLESS))
    path, fields = _prompt_fields(directory)
    check_fields(path, fields, {"model_type": (kind,)}, remedy=_REMEDY)
    prompts, default = fields.get("prompts") or {}, fields.get("default_prompt_name")
    if default is not None and prompts.get(default) != "":
        raise InputError(
            f"{path}: default_prompt_name is {default!r}: {prompts.get(default)!r} is put before every text, but here "
            "nothing is: set the field to null, and begin each text with the prompt"
        )
    if written := [f"{name} {prompt!r}" for name, prompt in prompts.items() if prompt]:
        remarks += (f"the prompts of {path} are not kept ({', '.join(written)}): begin texts with them",)
    listed = ("__version__", "model_type", "prompts", "default_prompt_name", "similarity_fn_name", "activation_fn")
    return remarks + unknown_fields(path, fields, listed)


def _not_read(directory: str, reason: str) -> str:
    return (
        f"{directory} is a sentence-transformers model whose sentence vectors are not computed ({reason}; supported: "
        "mean or cls, perhaps normalised)"
    )


def write_embedding(directory: str, embedding: EmbeddingSettings, hidden_size: int, positions: int) -> None:
    """Write the files for the settings of `embed`, if there is such a signature, beside Hugging Face's.

    `hidden_size`: H, the width of the vectors. `positions`: the tokens that the encoder reads.
    """
    if embedding.pooling == "none":
        return
    modules = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] * embedding.normalize)]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": _MODULES + kind} for i, (path, kind) in enumerate(modules)
    ]
    files.write_text(directory, MODULES_FILE, json.dumps(listed, indent=2) + "\n")
    for path, _ in modules[1:]:
        os.mkdir(os.path.join(directory, path))
    # The switches, which every version reads.
    switches = {name: mode == embedding.pooling for name, mode in _SWITCHES.items()}
    pooling = {"word_embedding_dimension": hidden_size, **switches}
    files.write_json(os.path.join(directory, "1_Pooling"), _POOLING_FILE, pooling)
    settings = {"max_seq_length": embedding.max_seq_length or positions, "do_lower_case": False}
    files.write_json(directory, _SETTINGS_FILES[0], settings)
