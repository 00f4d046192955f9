"""Variables of the BERT of TF's Model Garden, from which TF Hub's come, under the names of google-research/bert.

Two generations of names (official/nlp/tools/tf1_bert_checkpoint_converter_lib.py), each perhaps in a model's scope:
    transformer/layer_0/self_attention/attention_output/kernel      [heads, width of a head, H]
    bert_model/encoder/layer_0/self_attention_output/kernel         of 2019
    bert/encoder/layer_0/attention/output/dense/kernel [H, H]       google-research/bert's
"""

from __future__ import annotations

import dataclasses
import math
import re

from bert_keras.convert.families.weight import StoredTensor
from bert_keras.convert.weight_copy import named
from bert_keras.errors import InputError

_RENAMED = (
    (r"^(?:.+/)?(?:transformer|encoder)/(?=layer_\d+/)", "bert/encoder/"),
    (r"/self_attention/(?=(?:query|key|value)/)", "/attention/self/"),
    (r"/self_attention(?:/attention)?_output/", "/attention/output/dense/"),
    (r"/self_attention_layer_norm/", "/attention/output/LayerNorm/"),
    (r"/output_layer_norm/", "/output/LayerNorm/"),
    (r"(?<=\d)/(intermediate|output)/(?=kernel|bias)", r"/\1/dense/"),
    (r"^(?:.+/)?word_embeddings/embeddings$", "bert/embeddings/word_embeddings"),
    (r"^(?:.+/)?position_embeddings?(?:/embeddings)?$", "bert/embeddings/position_embeddings"),
    (r"^(?:.+/)?type_embeddings(?:/embeddings)?$", "bert/embeddings/token_type_embeddings"),
    (r"^(?:.+/)?(?:embeddings|embedding_postprocessor)/layer_norm/", "bert/embeddings/LayerNorm/"),
    (r"^(?:.+/)?(?:pooler_transform|next_sentence/pooler_dense)/", "bert/pooler/dense/"),
    (r"^(?:.+/)?cls/predictions/(?=transform/)", "cls/predictions/"),
    (r"^(?:.+/)?cls/predictions/output_bias(?:/bias)?$", "cls/predictions/output_bias"),
    (r"^(?:.+/)?(?:predictions/transform|next_sentence)/logits/bias$", "cls/seq_relationship/output_bias"),
    (r"^(?:.+/)?(?:predictions/transform|next_sentence)/logits/kernel$", "cls/seq_relationship/output_weights"),
)
_QUERY = "bert/encoder/layer_0/attention/self/query/bias"


def as_in_tf1(tensors: list[StoredTensor], prefix: str) -> tuple[list[StoredTensor], int]:
    """The variables of a checkpoint under google-research/bert's names and in its layout, and the number of heads.

    Raises:
        InputError: it has no BERT, or two.
    """
    if any("next_sentence/pooler_dense/" in tensor.name for tensor in tensors):
        # The encoder's own is not trained then.
        tensors = [tensor for tensor in tensors if "pooler_transform/" not in tensor.name]
    renamed: dict[str, StoredTensor] = {}
    num_heads = 0
    for tensor in tensors:
        name = tensor.name
        for pattern, new in _RENAMED:
            name = re.sub(pattern, new, name)
        if name in renamed:
            raise InputError(f"{prefix} has two variables for {name}; give a checkpoint of one model")
        renamed[name] = _in_layout(dataclasses.replace(tensor, name=name))
        if name == _QUERY and len(tensor.shape) == 2:
            num_heads = tensor.shape[0]
    if not num_heads:
        raise InputError(
            f"{prefix} is a checkpoint of TensorFlow 2, but not of a BERT of the TF Model Garden or TF Hub (it has "
            f"{named([tensor.name for tensor in tensors])}); take the model in Hugging Face's format"
        )
    return list(renamed.values()), num_heads


def _in_layout(tensor: StoredTensor) -> StoredTensor:
    name, shape = tensor.name, tensor.shape
    if name == "cls/seq_relationship/output_weights":
        return dataclasses.replace(tensor, shape=shape[::-1], read=lambda: tensor.read().T)
    if "/attention/self/" in name:
        axis = 1 if name.endswith("/kernel") else 0
        shape = (*shape[:axis], math.prod(shape[axis:]))
    elif name.endswith("/attention/output/dense/kernel"):
        shape = (math.prod(shape[:-1]), *shape[-1:])
    return dataclasses.replace(tensor, shape=shape, read=lambda: tensor.read().reshape(shape))
