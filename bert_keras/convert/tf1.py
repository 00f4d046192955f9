"""Checkpoints of google-research/bert (`bert_config.json`, `bert_model.ckpt.*`, `vocab.txt`), of
google-research/electra (`tf1_electra`), and of the BERT of TF's Model Garden and TF Hub (`tf_checkpoints`).
"""

import dataclasses
import os

from bert_keras import files
from bert_keras.convert import tf1_electra, weight_copy
from bert_keras.convert.architecture import Architecture, architecture_of, check_written, generator_fields
from bert_keras.convert.families.family import check_plain
from bert_keras.convert.model_folder import ModelFolder, Networks, Written, check_tokenizer
from bert_keras.convert.tensor_files import tf_checkpoints
from bert_keras.convert.tf1_electra import Network
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.tokenizers import vocabulary_files
from bert_keras.tokenizers.vocabulary_files import VOCABULARY_FILE

CONFIG_FILE = "bert_config.json"
CHECKPOINT = "bert_model.ckpt"
_WHOSE = "checkpoints of google-research/bert"
# Of an ELECTRA; the file `checkpoint` names it, since the original is given the folder.
_ELECTRA_CHECKPOINT = "electra.ckpt"
# The checkpoint in a SavedModel.
SAVED_MODEL_VARIABLES = os.path.join("variables", "variables")


def read_tf1(directory: str, cased: bool | None = None) -> ModelFolder:
    """Read a checkpoint of the original, with the heads in the file; an ELECTRA as its discriminator and generator.

    BERT's "gelu" is the tanh approximation (modeling.py, `gelu`), also in the Model Garden and TF Hub, ELECTRA's the
    exact function. Not read: the head of a fine-tuned model, and an optimizer's state. `directory`: the folder, also of
    a SavedModel, or the path of one of its checkpoints, without `.index`. Of several in a folder `bert_model.ckpt` is
    read, or the one that the file `checkpoint` names. `cased`: whether the vocabulary keeps case; None: unknown, but of
    TF Hub's SavedModels, which record it. InputError, which names file and tensor: a file is missing, damaged or unfit.
    """
    directory, prefix = _located(directory)
    config_path, index = os.path.join(directory, CONFIG_FILE), f"{prefix}.index"
    lacks_config = tf_checkpoints.is_checkpoint(prefix) and not os.path.exists(config_path)
    checkpoint = tf_checkpoints.read_checkpoint(prefix) if lacks_config else None
    networks = tf1_electra.networks(checkpoint.tensors, index, checkpoint.num_heads) if checkpoint else None
    if networks:
        architecture = networks[0].architecture
    else:
        text = files.read_text(config_path)
        try:
            config = BertConfig.from_json(text)
        except (TypeError, ValueError) as error:
            raise InputError(f"{config_path}: {error}") from error
        architecture = Architecture("bert", config, config.hidden_size)
    folder = os.path.join(directory, "assets") if prefix.endswith(SAVED_MODEL_VARIABLES) else directory
    vocabulary_path = os.path.join(folder, VOCABULARY_FILE)
    names_size = os.path.basename(index) if networks else CONFIG_FILE
    vocabulary = vocabulary_files.read_wordpiece(vocabulary_path, architecture.encoder.vocab_size, names_size)
    checkpoint = checkpoint or tf_checkpoints.read_checkpoint(prefix)
    if checkpoint.num_heads not in (0, heads := architecture.encoder.num_attention_heads):
        raise InputError(f"{index} has {checkpoint.num_heads} attention heads, but {config_path} says {heads}")
    model, generator = networks or (Network(architecture, checkpoint.tensors), None)
    if vocabulary and checkpoint.lower_case is not None:
        vocabulary = dataclasses.replace(vocabulary, rules={"lower_case": checkpoint.lower_case})
    for network in filter(None, (generator, model)):
        present = weight_copy.check_tensors(network.architecture, "tf1", network.tensors, index)
    has_mask_head = "masked-LM head" in {weight.part for weight in present}
    size = generator_fields(generator.architecture, architecture, f"{index}: the generator") if generator else None

    def load() -> Networks:
        first, *further = (
            weight_copy.read_model(network.architecture, "tf1", network.tensors, index)
            for network in filter(None, (model, generator))
        )
        return Networks(first.model, first.untrained, further[0].model if further else None)

    return ModelFolder(
        architecture,
        load,
        lambda: vocabulary.tokenizer(directory, cased) if vocabulary else None,
        directory,
        generator_fields=size,
        is_generator=architecture.family == "electra" and has_mask_head,
        head_left_out=weight_copy.head_left_out(checkpoint.task_head, prefix),
    )


def _located(path: str) -> tuple[str, str]:
    """The folder and the path of the checkpoint that `path`, either of them, stands for."""
    if tf_checkpoints.is_checkpoint(path):
        return os.path.dirname(path) or ".", path
    for usual in (os.path.join(path, name) for name in (CHECKPOINT, SAVED_MODEL_VARIABLES)):
        if tf_checkpoints.is_checkpoint(usual):
            return path, usual
    return path, tf_checkpoints.latest_checkpoint(path) or os.path.join(path, CHECKPOINT)


def write_tf1(folder: ModelFolder, directory: str) -> Written:
    """Write a checkpoint for the original's `init_checkpoint`, of a BERT with its `bert_config.json`.

    The original's layer normalisation always has an epsilon of 1e-12, whatever the configuration, and google-research/
    bert refuses a configuration with `gelu_erf`, which it cannot compute; `read_tf1` accepts both. InputError, before
    anything is written: the original has no such model, or would compute it differently.
    """
    import tensorflow as tf

    model = folder.model
    architecture = architecture_of(model, folder.family)
    config = architecture.encoder
    check_written(architecture)
    check_plain(config, _WHOSE)
    if not architecture.row.in_tf1:
        raise InputError(f"{_WHOSE} cannot hold a model of {architecture.title}; write it with --to hf")
    check_tokenizer(folder.tokenizer, config.vocab_size)
    tokenizer = vocabulary_files.wordpiece(folder.tokenizer, _WHOSE)
    tensors, name = weight_copy.tensors_of(model, "tf1", architecture.family), CHECKPOINT
    texts = {CONFIG_FILE: config.to_json()}
    if architecture.family == "electra":
        tf1_electra.check_written(config)
        tensors |= tf1_electra.generator_names(
            weight_copy.tensors_of(folder.generator, "tf1") if folder.generator else {}
        )
        name, texts = _ELECTRA_CHECKPOINT, {"checkpoint": f'model_checkpoint_path: "{_ELECTRA_CHECKPOINT}"\n'}
    with files.staged(directory) as temporary:
        if tokenizer:
            vocabulary_files.write_vocabulary(temporary, tokenizer)
        for file, text in texts.items():
            files.write_text(temporary, file, text)
        tf.raw_ops.SaveV2(
            prefix=os.path.join(temporary, name),
            tensor_names=list(tensors),
            shape_and_slices=[""] * len(tensors),
            tensors=list(tensors.values()),
        )
    left_out = weight_copy.left_out(model, "tf1", architecture.family)
    return Written(remarks=tuple(f"the {part} is dropped: {_WHOSE} have none" for part in left_out))
