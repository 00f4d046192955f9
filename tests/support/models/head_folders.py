"""Folders of fine-tuned models as `transformers` writes them, with weights that are made from their names.

`golden_heads/make.py` records what `transformers` answers.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from bert_keras.tokenizers.vocabulary_files import write_vocabulary
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe

GOLDEN = Path(__file__).parent / "golden_heads"
BYTES = tiny_byte_bpe(280)
WORDS = BertTokenizer([*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghinorstu")], True)
SIZES = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 12}
CHOICES = "ForMultipleChoice"
_WORDS = {"vocab_size": len(WORDS.vocabulary), "pad_token_id": 0, "max_position_embeddings": 64}
_BYTES = {"vocab_size": len(BYTES.vocabulary), "max_position_embeddings": 66, "type_vocab_size": 1}
_ENDS = dict.fromkeys(("cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id"))
_DISENTANGLED: dict[str, Any] = {"type_vocab_size": 0, "relative_attention": True, "position_biased_input": False}
_DISENTANGLED |= {"norm_rel_ebd": "layer_norm", "position_buckets": 8, "share_att_key": True, "pos_att_type": "p2c|c2p"}
# The stem of `transformers`' classes, and fields of their configuration.
FAMILIES = {
    "bert": ("Bert", {**SIZES, **_WORDS}),
    "roberta": ("Roberta", {**SIZES, **_BYTES, "layer_norm_eps": 1e-5}),
    "electra": ("Electra", {**SIZES, **_WORDS, "embedding_size": 6, "hidden_act": "gelu_new"}),
    "albert": ("Albert", {**SIZES, **_WORDS, "embedding_size": 6}),
    "modernbert": ("ModernBert", {**SIZES, **_WORDS, **_ENDS, "local_attention": 4}),
    "distilbert": ("DistilBert", {**_WORDS, "dim": 8, "n_layers": 2, "n_heads": 2, "hidden_dim": 12}),
    "xlm-roberta": ("XLMRoberta", {**SIZES, **_BYTES, "layer_norm_eps": 1e-5}),
    "camembert": ("Camembert", {**SIZES, **_BYTES, "layer_norm_eps": 1e-5}),
    "mpnet": ("MPNet", {**SIZES, **_WORDS, "pad_token_id": 1, "max_position_embeddings": 66}),
    "deberta-v2": ("DebertaV2", {**SIZES, **_WORDS, **_DISENTANGLED}),
}


def _labelled(*labels):
    return {"id2label": dict(enumerate(labels)), "label2id": {label: number for number, label in enumerate(labels)}}


# By the end of the class's name: fields of its configuration.
ENDS = {
    "ForSequenceClassification": _labelled("good", "bad", "so so"),
    "ForTokenClassification": _labelled("B-x", "I-x", "O"),
    "ForQuestionAnswering": {},
    CHOICES: {},
}


def drawn(name, shape):
    """A weight, the same with every version of NumPy."""
    around = 1.0 if name.lower().endswith("norm.weight") else 0.0
    return (around + np.random.RandomState(zlib.crc32(name.encode())).normal(0, 0.3, shape)).astype("float32")


def inputs_of(pad_id, has_segments, rows=3, length=10):
    """Rows of 10, 7 and 4 tokens, int64 [B, T], under the names of `transformers`; no token is special."""
    mask = np.arange(length) < np.arange(length, 0, -3)[:rows, None]
    ids = np.random.RandomState(1).randint(5, 40, (rows, length))
    segments = (np.arange(length) > 3) & mask & has_segments
    ids = np.where(mask, ids, pad_id)
    return {"input_ids": ids, "attention_mask": mask.astype("int64"), "token_type_ids": segments.astype("int64")}


def golden(family):
    """The records of golden_heads/make.py, by the end of the class's name."""
    recorded = json.loads((GOLDEN / f"{family}.json").read_text())
    shared = recorded.pop("shapes")
    return {end: {**values, "shapes": {**shared, **values["shapes"]}} for end, values in recorded.items()}


def tokenizer_of(family):
    """None for families whose vocabularies are of SentencePiece, or have padding at 1."""
    return {"roberta": BYTES, **dict.fromkeys(("xlm-roberta", "camembert", "mpnet"))}.get(family, WORDS)


def write_folder(family, recorded, folder, **fields):
    """A folder of Hugging Face's of a recorded model, with the vocabulary; returns its tensors."""
    tensors = {name: drawn(name, shape) for name, shape in recorded["shapes"].items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**recorded["config"], **fields}))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer := tokenizer_of(family):
        write_vocabulary(str(folder), tokenizer)
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 48}))
    return tensors
