"""Vocabularies of files: WordPiece's `vocab.txt`, byte-level BPE's `vocab.json` and `merges.txt`, `tokenizer.json`."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any

from bert_keras.byte_bpe import ByteBpeTokenizer
from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.features import VOCABULARY_FILE
from bert_keras.interchange.files import read_json, read_text, write_text
from bert_keras.tokenizer import BertTokenizer, load_vocabulary

Tokenizer = BertTokenizer | ByteBpeTokenizer

BPE_VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
FAST_TOKENIZER_FILE = "tokenizer.json"


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A token for each id; `merges` of byte-level BPE, None of WordPiece."""

    tokens: list[str]
    merges: list[tuple[str, str]] | None = None


def read_wordpiece(path: str, config: BertConfig, config_file: str) -> list[str] | None:
    """The tokens of a `vocab.txt`, None if there is none; InputError if they are not one a row of the embedding."""
    if not os.path.exists(path):
        return None
    try:
        vocabulary = load_vocabulary(path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); bring it again") from error
    _check_size(len(vocabulary), path, config, config_file)
    return vocabulary


def read_byte_bpe(directory: str, names: tuple[str, str], config: BertConfig, config_file: str) -> Vocabulary | None:
    """The tokens and merges of a folder's two files, None if neither is there; errors as `read_wordpiece`."""
    path, merges = (os.path.join(directory, name) for name in names)
    if not os.path.exists(path) and not os.path.exists(merges):
        return None
    tokens = _by_id(read_json(path), path, config, config_file)
    lines = read_text(merges).splitlines()
    # Files of GPT-2 and its heirs begin with their version.
    lines = [line for i, line in enumerate(lines) if line and not (i == 0 and line.startswith("#version"))]
    return Vocabulary(tokens, _pairs([line.split(" ") for line in lines], merges))


def read_fast(directory: str, config: BertConfig, config_file: str) -> Vocabulary | None:
    """What `tokenizer.json` holds, which `transformers` writes instead of the others since its version 5."""
    path = os.path.join(directory, FAST_TOKENIZER_FILE)
    if not os.path.exists(path):
        return None
    fields = read_json(path)
    model = {"type": None, "vocab": {}, "merges": [], **fields.get("model", {})}
    kind = model["type"]
    if kind == "WordPiece":
        return Vocabulary(_by_id(model["vocab"], path, config, config_file))
    if kind != "BPE" or "ByteLevel" not in json.dumps(fields.get("pre_tokenizer")):
        raise InputError(f"{path} is a tokenizer of {kind}; only WordPiece and byte-level BPE can be read")
    added = {token["content"]: token["id"] for token in fields.get("added_tokens") or ()}
    tokens = _by_id({**model["vocab"], **added}, path, config, config_file)
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    return Vocabulary(tokens, _pairs(merges, path))


def _check_size(size: int, path: str, config: BertConfig, config_file: str) -> None:
    if size != config.vocab_size:
        raise InputError(
            f"{path} has {size} tokens, but the word embeddings have {config.vocab_size} rows "
            f"(vocabulary size of {config_file}); bring the file that the model was trained with"
        )


def _by_id(ids: dict[str, Any], path: str, config: BertConfig, config_file: str) -> list[str]:
    """The tokens in the order of their ids; InputError if these are not 0, 1, ..., one a row of the embedding."""
    _check_size(len(ids), path, config, config_file)
    tokens = sorted(ids, key=ids.__getitem__)
    for i, token in enumerate(tokens):
        if ids[token] != i:
            raise InputError(f"{path}: no token has the id {i}; they must be 0, 1, ..., {len(ids) - 1}")
    return tokens


def _pairs(merges: list[list[str]], path: str) -> list[tuple[str, str]]:
    for number, merge in enumerate(merges, 1):
        if len(merge) != 2:
            raise InputError(f"{path}: merge {number} is {' '.join(merge)!r}; it must be two tokens")
    return [(left, right) for left, right in merges]


def check_tokenizer(tokenizer: Tokenizer | None, config: BertConfig) -> None:
    """InputError if the vocabulary to be written is not the model's."""
    if tokenizer and len(tokenizer.vocabulary) != config.vocab_size:
        raise InputError(
            f"the vocabulary has {len(tokenizer.vocabulary)} tokens, but the word embeddings of the model have "
            f"{config.vocab_size} rows; give the vocabulary that it was trained with"
        )


def wordpiece(tokenizer: Tokenizer | None, whose: str) -> BertTokenizer | None:
    """The same tokenizer; InputError if it is not WordPiece's."""
    if isinstance(tokenizer, ByteBpeTokenizer):
        raise InputError(f"{whose} have no place for byte-level BPE; write the model with --to hf")
    return tokenizer


def vocabulary_files(tokenizer: Tokenizer) -> dict[str, str]:
    """The texts of `vocab.txt`, or of `vocab.json` and `merges.txt`, by name."""
    if isinstance(tokenizer, BertTokenizer):
        return {VOCABULARY_FILE: "".join(token + "\n" for token in tokenizer.vocabulary)}
    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer.merges)
    return {BPE_VOCABULARY_FILE: json.dumps(ids, ensure_ascii=False) + "\n", MERGES_FILE: f"#version: 0.2\n{merges}"}


def write_vocabulary(directory: str, tokenizer: Tokenizer) -> None:
    """Writes `vocabulary_files`."""
    for name, text in vocabulary_files(tokenizer).items():
        write_text(directory, name, text)
