"""Files of a vocabulary in a folder: writing, copying, importing, and loading as a tokenizer.

vocab.txt        one token per line; the line number, from 0, is its id
merges.txt       for byte-level BPE: one pair of tokens per line, in the order of merging
spiece.model     for SentencePiece, instead of both
vocab_spec.json  origin: algorithm, case, accents, ideographs, Unicode version, sizes, sha256 of the first of them
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems

from bert_keras.errors import InputError
from bert_keras.tokenizers.protocol import Tokenizer, stored_format
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer, model_with_ids
from bert_keras.tokenizers.unicode_tables import UNICODE_VERSION, Normalization
from bert_keras.tokenizers.vocabulary_files import (
    FORMAT_FIELDS,
    MERGES_FILE,
    SENTENCEPIECE_FILE,
    VOCABULARY_FILE,
    VOCABULARY_SPEC_FILE,
    read_merges,
    read_vocabulary,
)
from bert_keras.tokenizers.wordpiece import BertTokenizer, make_tokenizer
from components.io.shards import open_file, write_file, write_json
from components.vocab_gen.settings import VocabularySettings

MERGES_HEADER = "#version: 0.2"


def write_vocabulary(
    output_dir: str,
    vocabulary: Sequence[str],
    merges: Sequence[tuple[str, str]],
    settings: VocabularySettings,
    model: bytes | None = None,
    **more: object,
) -> None:
    """Write the files; the spec, which gets the entries `more`, last."""
    content = model or "".join(token + "\n" for token in vocabulary).encode()
    write_file(f"{output_dir}/{SENTENCEPIECE_FILE if model else VOCABULARY_FILE}", content)
    if settings.algorithm == "byte_bpe":
        lines = [MERGES_HEADER, *(f"{left} {right}" for left, right in merges)]
        write_file(f"{output_dir}/{MERGES_FILE}", "".join(line + "\n" for line in lines).encode())
    rules = Normalization(lower_case=False) if settings.algorithm == "byte_bpe" else settings.normalization
    stripped, kept = ("NFKD", "NFKC") if model else ("NFD", "none")
    write_json(
        f"{output_dir}/{VOCABULARY_SPEC_FILE}",
        {
            **{name: value for name, value in dataclasses.asdict(settings).items() if name != "extend" or value},
            **rules.fields,
            "normalization": f"{stripped}, marks stripped" if rules.strip_accents else kept,
            "unicode_version": UNICODE_VERSION,
            "vocab_size": len(vocabulary),
            "vocabulary_sha256": hashlib.sha256(content).hexdigest(),
            **more,
        },
    )


def copy_vocabulary(source_dir: str, output_dir: str) -> None:
    """Copy the files of a vocabulary to another folder."""
    for name in (VOCABULARY_FILE, MERGES_FILE, SENTENCEPIECE_FILE, VOCABULARY_SPEC_FILE):
        if FileSystems.exists(f"{source_dir}/{name}"):
            write_file(f"{output_dir}/{name}", _read(f"{source_dir}/{name}"))


def load_tokenizer(directory: str) -> tuple[Tokenizer, dict[str, Any]]:
    """The tokenizer of a folder's vocabulary, and its spec. Errors as in `read_vocabulary`."""
    vocabulary, spec = read_vocabulary(directory, _read)
    return make_tokenizer(vocabulary, spec, spec["merges"]), spec


def import_vocabulary(path: str, output_dir: str, settings: VocabularySettings) -> int:
    """Import a user's vocabulary to a folder; returns its size. Arguments and errors as in `read_given`."""
    vocabulary, merges, model = read_given(path, settings)
    write_vocabulary(output_dir, vocabulary, merges, settings, model, source="given", **_further_fields(path))
    return len(vocabulary)


def given_tokenizer(path: str, settings: VocabularySettings) -> BertTokenizer:
    """The tokenizer of a user's vocabulary of word pieces, to extend. Errors as in `read_given`."""
    format_ = stored_format({"algorithm": settings.algorithm, **_further_fields(path)})
    return BertTokenizer(read_given(path, settings)[0], format_=format_, **settings.normalization.fields)


def _further_fields(path: str) -> dict[str, Any]:
    """The `vocabulary_files.format_fields` of the `vocab_spec.json` beside an initial model's vocabulary."""
    spec = os.path.join(os.path.dirname(path), VOCABULARY_SPEC_FILE)
    return {n: v for n, v in json.loads(_read(spec)).items() if n in FORMAT_FIELDS} if FileSystems.exists(spec) else {}


def read_given(path: str, settings: VocabularySettings) -> tuple[list[str], list[tuple[str, str]], bytes | None]:
    """Read a user's vocabulary: tokens in the order of their ids, merges for byte-level BPE, SentencePiece's model.

    It is vocab.txt, one token per line, or for byte-level BPE vocab.json (token -> id) with merges.txt beside it, or
    spiece.model.
    InputError: it cannot be read, or is not a vocabulary for this algorithm.
    """
    try:
        if settings.algorithm == "sentencepiece":
            model = model_with_ids(_read(path), "albert", settings.lower_case, not settings.normalization.strip_accents)
            format_ = stored_format({"algorithm": settings.algorithm, **_further_fields(path)})
            return list(SentencePieceTokenizer(model, format_).vocabulary), [], model
        text = _read(path).decode("utf-8-sig")
        if path.endswith(".json"):
            ids = json.loads(text)
            vocabulary = sorted(ids, key=ids.__getitem__)
            if sorted(ids.values()) != list(range(len(ids))):
                raise ValueError(f"its ids are not 0 to {len(ids) - 1}")
        else:
            # As in the original's load_vocab: only "\n" ends a line, tokens are stripped.
            vocabulary = [line.strip() for line in text.removesuffix("\n").split("\n")]
        merges = []
        if settings.algorithm == "byte_bpe":
            merges_path = f"{path.rpartition('/')[0] or '.'}/{MERGES_FILE}"
            merges = read_merges(_read(merges_path).decode("utf-8"), merges_path)
        make_tokenizer(vocabulary, {**dataclasses.asdict(settings), **_further_fields(path)}, merges)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path} is not a vocabulary for {settings.algorithm}: {error}") from error
    return vocabulary, merges, None


def _read(path: str) -> bytes:
    with open_file(path) as file:
        return file.read()
