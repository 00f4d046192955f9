"""Hugging Face's folder of a BERT, or of a relative (`weight_map.Family`): `config.json`, `model.safetensors` (or
shards and their index), and `vocab.txt`, `vocab.json` with `merges.txt`, `spiece.model`, or `tokenizer.json`.

Of older folders `pytorch_model.bin`, without running its pickle. A fine-tuned model has its head (`fine_tuned`).
Generator and discriminator of an ELECTRA are two folders; the generator's may lie in the discriminator's, as
`generator/`.
"""

import contextlib
import dataclasses
import os
import shutil
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras import files as files_
from bert_keras.convert import weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, backbone_of, check_written, generator_fields
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.huggingface import sentence_transformers
from bert_keras.convert.huggingface.fine_tuned import FineTuned, fine_tuned_fields, read_fine_tuned
from bert_keras.convert.huggingface.model_card import CARD_FILE, model_card
from bert_keras.convert.huggingface.tensors import CONFIG_FILE, WEIGHTS_FILE, canonical, open_tensors
from bert_keras.convert.model_folder import ModelFolder, Networks, Written, check_tokenizer
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, HiddenAct, Part
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenizers.fast_tokenizer import write_fast_tokenizer
from bert_keras.tokenizers.protocol import FORMATS, SENTENCEPIECE, Tokenizer, format_of
from bert_keras.tokenizers.tokenizer_files import gives_segments, read_rules
from bert_keras.tokenizers.vocabulary_files import (
    TOKENIZER_FILE,
    VOCABULARY_FILE,
    Vocabulary,
    read_length,
    read_settings,
    settings_of,
)

if TYPE_CHECKING:
    from bert_keras.convert.architecture import Model
    from bert_keras.models.electra import ElectraGenerator

# In a discriminator's folder: the folder of the generator that it was trained with.
GENERATOR_FOLDER = "generator"

_ACTIVATIONS: dict[str, HiddenAct] = {"gelu": "gelu_erf", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
# `gelu_new` is the older name, known to every version.
_ACTIVATION_NAMES: dict[HiddenAct, str] = {"gelu_erf": "gelu", "gelu_tanh": "gelu_new"}
# Fields of `config.json` whose other values mean another model with the same tensors, in any family.
_MUST_BE = {"position_embedding_type": "absolute", "is_decoder": False}
_READ = {name: family for name, family in FAMILIES.items() if family.prefix}


def read_huggingface(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read a model according to `config.json`, with the heads in the file.

    InputError, which names file and tensor: a file is missing or damaged, or does not fit the configuration.
    """
    config_path = os.path.join(directory, CONFIG_FILE)
    architecture = _read_architecture(config_path)
    positions = architecture.encoder.max_position_embeddings
    vocabulary, notes = _read_vocabulary(directory, architecture)
    length = read_length(directory, positions)
    with contextlib.ExitStack() as files:
        tensors, file, unknown = open_tensors(directory, architecture.row, files)
        tuned = FineTuned(architecture)
        if unknown:
            tuned = read_fine_tuned(config_path, architecture, length or positions, unknown)
            architecture = tuned.architecture
            tensors, _, unknown = open_tensors(directory, architecture.row, files)
        stored = canonical(tensors, architecture.row, reads=False)
        parts = {weight.part for weight in weight_copy.check_tensors(architecture, "huggingface", stored, file)}
    _check_head(architecture, parts, config_path)
    embedding, not_read = sentence_transformers.read_embedding(directory, positions)
    longest = embedding.max_seq_length or positions
    if embedding.pooling != "none" and length and length < longest:  # sentence-transformers sets the tokenizer's
        length = longest if longest < positions else None
    dimensions = files_.read_json(config_path).get("matryoshka_dimensions") or []  # vLLM reads it, too
    if not isinstance(dimensions, list):
        raise InputError(f"{config_path}: matryoshka_dimensions is {dimensions!r}; it must be a list of numbers")
    embedding = dataclasses.replace(embedding, matryoshka_dimensions=tuple(dimensions))
    size = None if tuned.task else _generator_fields(directory, architecture)
    return ModelFolder(
        architecture,
        lambda: _load(directory, tuned, size is not None),
        lambda: vocabulary.tokenizer(directory, cased) if vocabulary else None,
        directory,
        generator_fields=size,
        is_generator=architecture.family == "electra" and "masked-LM head" in parts,
        embedding=embedding,
        max_seq_length=length,
        task=tuned.task,
        settings=tuned.settings,
        head_left_out=weight_copy.head_left_out(unknown, file, tuned.why_not),
        notes=(*not_read, *notes),
    )


def _load(directory: str, tuned: FineTuned, has_generator: bool) -> Networks:
    from bert_keras.tasks.task_types import task_type_of

    architecture, model = tuned.architecture, None
    if tuned.task and tuned.settings:
        size = architecture.embedding_size
        model = task_type_of(tuned.task).create_model(architecture.encoder, tuned.task, tuned.settings, 0, size)
        model.build()
    with contextlib.ExitStack() as files:
        tensors, file, _ = open_tensors(directory, architecture.row, files)
        stored = canonical(tensors, architecture.row)
        networks = weight_copy.read_model(architecture, "huggingface", stored, file, model)
    if model:  # a pooler that its head does not read may be missing
        return dataclasses.replace(networks, untrained=())
    if not has_generator:
        return networks
    return dataclasses.replace(networks, generator=_read_generator(directory, networks.model))


def _generator_fields(directory: str, discriminator: Architecture) -> dict[str, float] | None:
    """The generator's size, as in `ModelFolder`; None if there is no generator."""
    folder = os.path.join(directory, GENERATOR_FOLDER)
    path = os.path.join(folder, CONFIG_FILE)
    if discriminator.family != "electra" or not os.path.exists(path):
        return None
    generator = read_huggingface(folder)
    if not generator.is_generator:
        raise InputError(f"{folder}: has no masked-LM head, so it is no generator; give the one of {directory}")
    return generator_fields(generator.architecture, discriminator, f"{path}: is not the generator of {directory}")


def _read_generator(directory: str, discriminator: "Model") -> "ElectraGenerator":
    folder = os.path.join(directory, GENERATOR_FOLDER)
    generator: Any = read_huggingface(folder).model
    ours, theirs = (backbone_of(network).embeddings.get_weights() for network in (generator, discriminator))
    if not all(map(np.array_equal, ours, theirs)):
        raise InputError(f"{folder}: its embeddings are not those of {directory}; they must be shared (equal)")
    return generator


def write_huggingface(folder: ModelFolder, directory: str) -> Written:
    """Write a folder that `transformers` loads, as the class with the same heads, or as the bare encoder.

    Tensors have the family's prefix, which other programs than `transformers` need. With `embedding`
    sentence-transformers loads the folder, too. InputError, before anything is written: `transformers` has no such
    model, or the sizes of vocabulary and word embeddings differ.
    """
    from safetensors.numpy import save_file

    model, tokenizer = folder.model, folder.tokenizer
    architecture = architecture_of(model, folder.family)
    family, encoder = architecture.row, architecture.encoder
    check_written(architecture)
    check_tokenizer(tokenizer, encoder.vocab_size)
    parts = weight_copy.parts_of(model, "huggingface", family.name)
    _check_head(architecture, parts, "the model")
    fields = {**_config_fields(architecture, parts, tokenizer), **fine_tuned_fields(folder, architecture)}
    if folder.embedding.matryoshka_dimensions:
        fields["matryoshka_dimensions"] = folder.embedding.matryoshka_dimensions
    left_out = weight_copy.left_out(model, "huggingface", family.name)
    left_out += ("generator",) if folder.generator and family.name != "electra" else ()
    tensors = weight_copy.tensors_of(model, "huggingface", family.name)
    if architecture.head:
        unread = {w.huggingface.name for w in architecture.weights() if w.part == "pooler" and w.huggingface}
        tensors = {name: value for name, value in tensors.items() if name not in unread}
        # Of choices, which all have the same.
        tensors.setdefault(f"{architecture.head.output}.bias", np.zeros(architecture.outputs, "float32"))
    tensors = family.tensors_there(tensors)
    with files_.staged(directory) as temporary:
        length = folder.settings.max_seq_length if folder.task and folder.settings else folder.max_seq_length
        length = length or encoder.max_position_embeddings
        if tokenizer:
            # What is done before byte-level BPE only tokenizer.json says.
            only_fast = isinstance(tokenizer, ByteBpeTokenizer) and (tokenizer.nfc or bool(tokenizer.added))
            if not only_fast:
                vocabulary_files.write_vocabulary(temporary, tokenizer)
            settings = settings_of(tokenizer, length)
            if not (tokenizer.has_segments and encoder.type_vocab_size):
                settings["model_input_names"] = ["input_ids", "attention_mask"]
            # MPNet's vocabulary has BERT's special tokens beside its own.
            only_fast = only_fast or family.only_fast_tokenizer or tokenizer.format == FORMATS["mpnet"]
            if only_fast or tokenizer.algorithm == SENTENCEPIECE:
                settings |= write_fast_tokenizer(temporary, tokenizer)
            files_.write_json(temporary, TOKENIZER_FILE, settings)
        files_.write_json(temporary, CONFIG_FILE, fields)
        name = os.path.basename(os.path.abspath(directory))
        files_.write_text(temporary, CARD_FILE, model_card(folder, fields["architectures"][0], name))
        sentence_transformers.write_embedding(temporary, folder.embedding, encoder.hidden_size, length)
        weights = os.path.join(temporary, WEIGHTS_FILE)
        # Some versions of `transformers` refuse a file without this field.
        save_file(tensors, weights, metadata={"format": "pt"})
        # safetensors makes the file readable to its owner only, whatever the umask.
        shutil.copymode(os.path.join(temporary, CONFIG_FILE), weights)
        if folder.generator and family.name == "electra":
            generator = ModelFolder.in_memory(folder.generator, tokenizer)
            write_huggingface(generator, os.path.join(temporary, GENERATOR_FOLDER))
    return Written(remarks=tuple(f"the {part} is dropped: {fields['architectures'][0]} has none" for part in left_out))


def _config_fields(architecture: Architecture, parts: Collection[Part], tokenizer: Tokenizer | None) -> dict[str, Any]:
    family, config = architecture.row, architecture.encoder
    activation = _ACTIVATION_NAMES[config.hidden_act]
    fields = family.fields_there(family, config, architecture.embedding_size, activation)
    if tokenizer:
        fields |= {name: getattr(tokenizer, attribute) for name, attribute in family.token_ids.items()}
    head = "ForPreTraining" if {"next-sentence head", "discriminator head"} & set(parts) else "Model"
    head = "ForMaskedLM" if head == "Model" and "masked-LM head" in parts else head
    fields = {
        **_MUST_BE,
        **family.must_be,
        "model_type": family.name,
        "architectures": [family.class_stem + head],
        **fields,
    }
    if tokenizer and fields.setdefault("pad_token_id", tokenizer.pad_id) != tokenizer.pad_id:
        raise InputError(
            f"the vocabulary has padding at id {tokenizer.pad_id}; a {family.title} of Hugging Face counts its "
            f"positions from the id of padding, which must be {fields['pad_token_id']}: use the vocabulary that it was "
            "trained with"
        )
    return fields


def _read_architecture(path: str) -> Architecture:
    stored = files_.read_json(path)
    name = stored.get("model_type", "bert")
    if name not in _READ:
        raise InputError(f"{path}: model_type is {name!r}; supported: {', '.join(map(repr, _READ))}")
    family = _READ[name]
    # The default is the exact gelu, as in `transformers`.
    fields = {"hidden_act": "gelu", **family.defaults, **stored}
    for field, value in {**_MUST_BE, **family.must_be}.items():
        if fields.get(field, value) != value:
            raise InputError(f"{path}: {field} is {fields[field]!r}; supported: {value!r}")
    try:
        if family.unused_rows:
            fields["max_position_embeddings"] = fields.get("max_position_embeddings", 512) - family.unused_rows
        fields = family.fields_here(fields)
        encoder = BertConfig.from_fields({**fields, "causal": False}, _ACTIVATIONS)
        width = fields["embedding_size"] if name == "electra" else encoder.of_width().hidden_size
        if not isinstance(width, int) or width < 1:
            raise ValueError(f"embedding_size is {width!r}; it must be a whole number, at least 1")
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: {error}") from error
    return Architecture(name, encoder, width)


def _check_head(architecture: Architecture, parts: Collection[Part], where: str) -> None:
    """Raise InputError if `transformers` computes another function from the masked-LM head's tensors."""
    exact = architecture.encoder.hidden_act == "gelu_erf" or not architecture.row.exact_head
    if "masked-LM head" in parts and not exact:
        raise InputError(
            f"{where}: hidden_act is the approximate gelu, but transformers' masked-LM head of {architecture.title} "
            "always has the exact one; convert only a model with the exact gelu throughout, or without the head"
        )


def _read_vocabulary(directory: str, architecture: Architecture) -> tuple[Vocabulary | None, tuple[str, ...]]:
    """The vocabulary of the first kind of files that is there, with its rules, and remarks on them."""
    size = architecture.encoder.vocab_size, CONFIG_FILE
    names = vocabulary_files.BPE_VOCABULARY_FILE, vocabulary_files.MERGES_FILE
    vocabulary = vocabulary_files.read_wordpiece(os.path.join(directory, VOCABULARY_FILE), *size)
    vocabulary = vocabulary or vocabulary_files.read_byte_bpe(directory, names, *size)
    settings = read_settings(directory)
    kind = f"{architecture.family} {settings.get('tokenizer_class')}"
    vocabulary = vocabulary or vocabulary_files.read_sentencepiece(directory, *size, settings, kind)
    vocabulary = vocabulary or vocabulary_files.read_fast(directory, *size)
    if vocabulary is None:
        return None, ()
    format_ = format_of(vocabulary.algorithm, vocabulary.tokens, architecture.row.has_segments)
    vocabulary = dataclasses.replace(vocabulary, format=format_)
    said, remarks = read_rules(directory, vocabulary)
    said = sentence_transformers.lower_cased(directory, vocabulary, said)
    if architecture.encoder.type_vocab_size and not gives_segments(directory):
        format_ = format_._replace(has_segments=False)
    return dataclasses.replace(vocabulary, rules=said, format=format_), remarks
