"""A vocabulary's files, in one folder: written, copied, brought by the user, and read as a tokenizer.

vocab.txt        a token a line; the line number, from 0, is its id
merges.txt       of byte-level BPE: a pair of tokens a line, the first to be merged first
vocab_spec.json  what made it: algorithm, case, normalisation, Unicode version, sizes, sha256 of vocab.txt
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence

from apache_beam.io.filesystems import FileSystems

from bert_keras.byte_bpe import ByteBpeTokenizer
from bert_keras.errors import InputError
from bert_keras.features import MERGES_FILE, VOCABULARY_FILE, VOCABULARY_SPEC_FILE
from bert_keras.tokenizer import BertTokenizer, make_tokenizer
from bert_keras.unicode_tables import UNICODE_VERSION
from components.shards import open_file, whole_file, write_json
from components.vocab_gen.settings import VocabularySettings

MERGES_HEADER = "#version: 0.2"


def write_vocabulary(
    output_dir: str,
    vocabulary: Sequence[str],
    merges: Sequence[tuple[str, str]],
    settings: VocabularySettings,
    **more: object,
) -> None:
    """Writes the files; the spec last.

    Args:
        more: what else the spec says.
    """
    content = "".join(token + "\n" for token in vocabulary).encode()
    _write(f"{output_dir}/{VOCABULARY_FILE}", content)
    if settings.algorithm == "byte_bpe":
        lines = [MERGES_HEADER, *(f"{left} {right}" for left, right in merges)]
        _write(f"{output_dir}/{MERGES_FILE}", "".join(line + "\n" for line in lines).encode())
    folds = settings.algorithm == "wordpiece" and settings.lower_case
    write_json(
        f"{output_dir}/{VOCABULARY_SPEC_FILE}",
        {
            **dataclasses.asdict(settings),
            "lower_case": folds,
            "normalization": "NFD, marks stripped" if folds else "none",
            "unicode_version": UNICODE_VERSION,
            "vocab_size": len(vocabulary),
            "vocabulary_sha256": hashlib.sha256(content).hexdigest(),
            **more,
        },
    )


def copy_vocabulary(source_dir: str, output_dir: str) -> None:
    """Copies the files of a vocabulary to another folder."""
    for name in (VOCABULARY_FILE, MERGES_FILE, VOCABULARY_SPEC_FILE):
        if name != MERGES_FILE or FileSystems.exists(f"{source_dir}/{name}"):
            with open_file(f"{source_dir}/{name}") as file:
                _write(f"{output_dir}/{name}", file.read())


def load_tokenizer(directory: str) -> tuple[BertTokenizer | ByteBpeTokenizer, dict]:
    """The tokenizer of a folder's vocabulary, and what vocab_spec.json says of it.

    Raises:
        ValueError: vocab.txt is not the file that the spec is of.
    """
    content = _read(f"{directory}/{VOCABULARY_FILE}")
    spec = json.loads(_read(f"{directory}/{VOCABULARY_SPEC_FILE}"))
    if hashlib.sha256(content).hexdigest() != spec["vocabulary_sha256"]:
        raise ValueError(
            f"{directory}/{VOCABULARY_FILE} is not the file that {VOCABULARY_SPEC_FILE} beside it is of: "
            "its sha256 differs"
        )
    merges = _parse_merges(directory) if spec["algorithm"] == "byte_bpe" else []
    return make_tokenizer(content.decode().removesuffix("\n").split("\n"), spec, merges), spec


def bring_vocabulary(path: str, output_dir: str, settings: VocabularySettings) -> int:
    """Writes a vocabulary that the user has as one of ours; returns its size.

    Args:
        path: vocab.txt, a token a line, or for byte-level BPE vocab.json (token -> id); merges.txt lies beside it.

    Raises:
        InputError: it cannot be read, or is none for this algorithm; names the file.
    """
    try:
        text = _read(path).decode("utf-8")
        if path.endswith(".json"):
            ids = json.loads(text)
            vocabulary = sorted(ids, key=ids.__getitem__)
            if sorted(ids.values()) != list(range(len(ids))):
                raise ValueError(f"its ids are not 0 to {len(ids) - 1}")
        else:
            # As the original reads it: only "\n" ends a line, tokens are stripped.
            vocabulary = [line.strip() for line in text.removesuffix("\n").split("\n")]
        merges = _parse_merges(path.rpartition("/")[0] or ".") if settings.algorithm == "byte_bpe" else []
        make_tokenizer(vocabulary, dataclasses.asdict(settings), merges)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: no vocabulary for {settings.algorithm}: {error}") from error
    write_vocabulary(output_dir, vocabulary, merges, settings, source="given")
    return len(vocabulary)


def _parse_merges(directory: str) -> list[tuple[str, str]]:
    lines = _read(f"{directory}/{MERGES_FILE}").decode("utf-8").removesuffix("\n").split("\n")
    pairs = [tuple(line.split(" ")) for line in lines if not line.startswith("#version")]
    if wrong := [pair for pair in pairs if len(pair) != 2]:
        raise ValueError(f"{directory}/{MERGES_FILE}: {' '.join(wrong[0])!r} is no pair of tokens")
    return pairs  # type: ignore[return-value]


def _read(path: str) -> bytes:
    with open_file(path) as file:
        return file.read()


def _write(path: str, content: bytes) -> None:
    with whole_file(path, os.path.dirname(path)) as file:
        file.write(content)
