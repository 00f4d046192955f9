"""Folders of fine-tuned models as `transformers` writes them, with weights that are made from their names.

`golden_heads/make.py` records what `transformers` answers.
"""

import json
import zlib
from pathlib import Path

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
# The stem of `transformers`' classes, and fields of their configuration.
FAMILIES = {
    "bert": ("Bert", {**SIZES, **_WORDS}),
    "roberta": ("Roberta", {**SIZES, **_BYTES, "layer_norm_eps": 1e-5}),
    "electra": ("Electra", {**SIZES, **_WORDS, "embedding_size": 6, "hidden_act": "gelu_new"}),
    "albert": ("Albert", {**SIZES, **_WORDS, "embedding_size": 6}),
    "modernbert": ("ModernBert", {**SIZES, **_WORDS, **_ENDS, "local_attention": 4}),
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
    """What make.py recorded, by the end of the class's name."""
    return json.loads((GOLDEN / f"{family}.json").read_text())


def tokenizer_of(family):
    return BYTES if family == "roberta" else WORDS


def write_folder(family, recorded, folder, **fields):
    """A folder of Hugging Face's of a recorded model, with a vocabulary; returns its tensors."""
    tensors = {name: drawn(name, shape) for name, shape in recorded["shapes"].items()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**recorded["config"], **fields}))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    write_vocabulary(str(folder), tokenizer_of(family))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 48}))
    return tensors
