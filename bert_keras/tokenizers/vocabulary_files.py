"""Vocabulary files: WordPiece's `vocab.txt`, byte-level BPE's `vocab.json` and `merges.txt`, SentencePiece's
`spiece.model`, `tokenizer.json`; and Hugging Face's `tokenizer_config.json`.
"""

import functools
import hashlib
import itertools
import json
import os
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any

from etils import epath

from bert_keras.errors import InputError
from bert_keras.files import check_download, read_json, read_text, write_text
from bert_keras.notices import notify
from bert_keras.tokenizers.byte_bpe import BPE_FIELDS, ByteBpeTokenizer
from bert_keras.tokenizers.protocol import BYTE_BPE, SENTENCEPIECE, TITLES, Tokenizer, default_format
from bert_keras.tokenizers.sentencepiece import (
    SentencePieceTokenizer,
    model_of_fast,
    model_with_ids,
    precompiled,
    with_tokens,
)
from bert_keras.tokenizers.unicode_tables import Normalization
from bert_keras.tokenizers.wordpiece import BertTokenizer, load_vocabulary
from bert_keras.tokenizers.wordpiece import Vocabulary as Vocabulary

VOCABULARY_FILE = "vocab.txt"
VOCABULARY_SPEC_FILE = "vocab_spec.json"
BPE_VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
SENTENCEPIECE_FILE = "spiece.model"
# Names of model files, and the models that have them (`sentencepiece.IDS`).
SENTENCEPIECE_FILES = {
    SENTENCEPIECE_FILE: "albert",
    "sentencepiece.bpe.model": "xlm-roberta",
    "spm.model": "deberta-v2",
}
FAST_TOKENIZER_FILE = "tokenizer.json"
ADDED_FILE = "added_tokens.json"  # of Hugging Face's older folders: ids after those of the vocabulary
TOKENIZER_FILE, LENGTH = "tokenizer_config.json", "model_max_length"
LENGTHS = (LENGTH, "max_len")  # the older name
# Fields of `vocab_spec.json` that are not an algorithm's default (`format_fields`).
FORMAT_FIELDS = (*BPE_FIELDS, "format")
# Rules of `model_with_ids` in `tokenizer_config.json`.
UNIGRAM_RULES = ("do_lower_case", "keep_accents")
# Of padded word embeddings.
_SMALLEST_MULTIPLE, _LARGEST_MULTIPLE = 8, 128


def read_vocabulary(
    directory: str, read: Callable[[str], bytes] = lambda path: epath.Path(path).read_bytes()
) -> tuple[list[str], dict[str, Any]]:
    """The tokens of a vocabulary of this project, in the order of their ids, and the contents of `vocab_spec.json`.

    The latter with `merges`: pairs of tokens, none but for byte-level BPE; and `model`: that of SentencePiece.
    ValueError: the sha256 of `vocab.txt` or `spiece.model` differs from the spec's.
    """
    spec = json.loads(read(f"{directory}/{VOCABULARY_SPEC_FILE}"))
    is_model = spec["algorithm"] == SENTENCEPIECE
    path = f"{directory}/{SENTENCEPIECE_FILE if is_model else VOCABULARY_FILE}"
    content = read(path)
    if hashlib.sha256(content).hexdigest() != spec["vocabulary_sha256"]:
        raise ValueError(f"{path} is not the file that {VOCABULARY_SPEC_FILE} beside it describes: its sha256 differs")
    if is_model:
        return [piece for piece, _ in precompiled(content)[0]], {**spec, "merges": [], "model": content}
    merges: list[tuple[str, str]] = []
    if spec["algorithm"] == BYTE_BPE:
        path = f"{directory}/{MERGES_FILE}"
        merges = read_merges(read(path).decode("utf-8"), path)
    return content.decode("utf-8").rstrip("\n").split("\n"), {**spec, "merges": merges}


def read_wordpiece(path: str, vocab_size: int, config_file: str) -> Vocabulary | None:
    """The tokens of a `vocab.txt` and of its `added_tokens.json`, None without the file; no rules.

    InputError: their number is not `vocab_size`, not even with padding, or the ids of added ones have gaps.
    """
    if not os.path.exists(path):
        return None
    try:
        vocabulary = load_vocabulary(path)
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); copy it again") from error
    added = _added_tokens(path, set(vocabulary))
    return Vocabulary(_padded(vocabulary + _in_order(added, path, len(vocabulary)), path, vocab_size, config_file))


def read_byte_bpe(directory: str, names: tuple[str, str], vocab_size: int, config_file: str) -> Vocabulary | None:
    """The tokens and merges of a folder's files, None without both; otherwise as `read_wordpiece`."""
    path, merges = (os.path.join(directory, name) for name in names)
    if not os.path.exists(path) and not os.path.exists(merges):
        return None
    ids = read_json(path)
    tokens = _by_id({**ids, **_added_tokens(path, ids.keys())}, path, vocab_size, config_file)
    return Vocabulary(tokens, read_merges(read_text(merges), merges))


def read_merges(text: str, path: str) -> list[tuple[str, str]]:
    """The pairs of tokens in the text of a `merges.txt`; those of GPT-2 and its successors begin with a version."""
    lines = [line for i, line in enumerate(text.split("\n")) if line and not (i == 0 and line.startswith("#version"))]
    return _pairs([line.split(" ") for line in lines], path)


def read_sentencepiece(
    directory: str, vocab_size: int, config_file: str, settings: Mapping[str, Any] | None = None, name: str = ""
) -> Vocabulary | None:
    """The pieces of a folder's SentencePiece model, None without a file of `SENTENCEPIECE_FILES`.

    Errors as in `read_wordpiece`, or it is damaged. `settings`: fields of `tokenizer_config.json`. `name`: names of the
    kind of model and of its tokenizer.
    """
    paths = {os.path.join(directory, file): kind for file, kind in SENTENCEPIECE_FILES.items()}
    path = next(filter(os.path.exists, paths), None)
    if path is None:
        return None
    kind = "camembert" if paths[path] == "xlm-roberta" and "camembert" in name.lower() else paths[path]
    # The classes of XLM-RoBERTa and CamemBERT have no rules.
    said = {} if settings is None or kind in ("xlm-roberta", "camembert") else settings
    rules = zip(UNIGRAM_RULES, (kind == "albert", kind != "albert"), strict=True)
    check_download(path)
    with open(path, "rb") as file:
        content = file.read()
    try:
        model = model_with_ids(content, kind, *(said.get(name, default) for name, default in rules))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error
    return _pieces(model, path, vocab_size, config_file, _added_tokens(path, set()))


def _pieces(model: bytes, path: str, vocab_size: int, config_file: str, added: Mapping[str, int]) -> Vocabulary:
    """The vocabulary of a model, with tokens that were added to it, by id, and unused ones for padding."""
    pieces = [piece for piece, _ in precompiled(model)[0]]
    added = {token: i for token, i in added.items() if i >= len(pieces)}
    tokens = _padded(pieces + _in_order(added, path, len(pieces)), path, vocab_size, config_file)
    return Vocabulary(tokens, sentencepiece=with_tokens(model, tokens[len(pieces) :]) if tokens != pieces else model)


def read_fast(directory: str, vocab_size: int, config_file: str) -> Vocabulary | None:
    """The vocabulary in `tokenizer.json`, which `transformers` 5 writes instead of the other files."""
    path = os.path.join(directory, FAST_TOKENIZER_FILE)
    if not os.path.exists(path):
        return None
    fields = read_json(path)
    model = {"type": None, "vocab": {}, "merges": [], **fields.get("model", {})}
    algorithm = model["type"]
    added_tokens = fields.get("added_tokens") or ()
    added = {token["content"]: token["id"] for token in added_tokens}
    if algorithm == "WordPiece":
        _tell_added(path, tuple(sorted(added.keys() - model["vocab"].keys())))
        return Vocabulary(_by_id({**model["vocab"], **added}, path, vocab_size, config_file))
    if algorithm == "Unigram":
        try:
            pieces = model_of_fast(fields)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        return _pieces(pieces, path, vocab_size, config_file, added)
    if algorithm != "BPE" or "ByteLevel" not in json.dumps(fields.get("pre_tokenizer")):
        raise InputError(f"{path} is a {algorithm} tokenizer; only WordPiece, byte-level BPE and Unigram are supported")
    nfc = (fields.get("normalizer") or {}).get("type") == "NFC"
    cut = [token for token in added_tokens if not token.get("special", True)]
    for token in cut:
        for name, value in {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}.items():
            if token.get(name, value) != value and (nfc or name != "normalized"):
                raise InputError(
                    f"{path}: added token {token['content']!r} has {name}={token[name]}, which no tokenizer here "
                    "follows; remove the file to convert the weights alone"
                )
    tokens = _by_id({**model["vocab"], **added}, path, vocab_size, config_file)
    merges = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
    return Vocabulary(tokens, _pairs(merges, path), nfc=nfc, added=tuple(token["content"] for token in cut))


def _added_tokens(path: str, known: Set[str]) -> dict[str, Any]:
    """The tokens that were added to a vocabulary file, by `added_tokens.json` beside it."""
    added_path = os.path.join(os.path.dirname(path), ADDED_FILE)
    added = read_json(added_path) if os.path.exists(added_path) else {}
    _tell_added(added_path, tuple(sorted(added.keys() - known)))
    return {token: i for token, i in added.items() if token not in known}


@functools.cache  # a folder is read more than once
def _tell_added(path: str, tokens: tuple[str, ...]) -> None:
    if tokens:
        notify(f"{path}: texts are not searched for {', '.join(tokens[:5])}; transformers does that with added tokens")


def _by_id(ids: dict[str, Any], path: str, vocab_size: int, config_file: str) -> list[str]:
    """The tokens in the order of their ids, 0, 1, ..., vocab_size - 1; errors as in `read_wordpiece`."""
    return _padded(_in_order(ids, path, 0), path, vocab_size, config_file)


def _in_order(ids: dict[str, Any], path: str, first: int) -> list[str]:
    """The tokens in the order of their ids; InputError if these are not `first`, `first` + 1, ..."""
    tokens = sorted(ids, key=ids.__getitem__)
    for i, token in enumerate(tokens, first):
        if ids[token] != i:
            raise InputError(f"{path}: no token has the id {i}; they must be 0, 1, ..., {first + len(ids) - 1}")
    return tokens


def _padded(tokens: list[str], path: str, vocab_size: int, config_file: str) -> list[str]:
    """The tokens, and unused names for further rows of the word embeddings: up to 5 %, or to a multiple of 8 to 128."""
    multiple = max(min(vocab_size & -vocab_size, _LARGEST_MULTIPLE), 0 if vocab_size % 100 else 100)
    if len(tokens) == vocab_size:
        return tokens
    most = max(multiple - 1 if multiple >= _SMALLEST_MULTIPLE else 0, len(tokens) // 20)
    if not 0 < vocab_size - len(tokens) <= most:
        raise InputError(
            f"{path} has {len(tokens)} tokens, but the word embeddings have {vocab_size} rows "
            f"(vocabulary size of {config_file}); use the file that the model was trained with"
        )
    _tell_padded(path, len(tokens), vocab_size)
    known = set(tokens)
    names = (name for i in itertools.count(len(tokens)) if (name := f"[unused{i}]") not in known)
    return [*tokens, *itertools.islice(names, vocab_size - len(tokens))]


@functools.cache
def _tell_padded(path: str, size: int, vocab_size: int) -> None:
    notify(f"{path} has {size:,} tokens, the word embeddings {vocab_size:,} rows: the further rows get unused names")


def _pairs(merges: list[list[str]], path: str) -> list[tuple[str, str]]:
    for number, merge in enumerate(merges, 1):
        if len(merge) != 2:
            raise InputError(f"{path}: merge {number} is {' '.join(merge)!r}; it must be two tokens")
    return [(left, right) for left, right in merges]


def wordpiece(
    tokenizer: Tokenizer | None, whose: str, stored: Collection[str] = ("lower_case",)
) -> BertTokenizer | None:
    """Return the tokenizer unchanged; InputError for byte-level BPE, SentencePiece, and rules that are not `stored`."""
    if isinstance(tokenizer, BertTokenizer):
        rules = tokenizer.normalization.fields
        known = Normalization(**{name: rules[name] for name in stored}).fields
        for name, value in rules.items():
            if value != known[name]:
                raise InputError(f"{whose} cannot store {name}={value} of the vocabulary; write the model with --to hf")
    if tokenizer is None or isinstance(tokenizer, BertTokenizer):
        return tokenizer
    raise InputError(f"{whose} cannot store {TITLES[tokenizer.algorithm]}; write the model with --to hf")


def vocabulary_spec(tokenizer: Tokenizer) -> dict[str, Any]:
    """The content of a pushed folder's `vocab_spec.json`."""
    rules = tokenizer.normalization.fields if isinstance(tokenizer, BertTokenizer) else {}
    return {"algorithm": tokenizer.algorithm, **rules, **format_fields(tokenizer)}


def format_fields(tokenizer: Tokenizer) -> dict[str, Any]:
    """The fields of `vocab_spec.json` that an algorithm's default does not have."""
    fields = {name: value for name in BPE_FIELDS if (value := getattr(tokenizer, name, None))}
    is_default = tokenizer.format == default_format(tokenizer.algorithm)
    return fields if is_default else {**fields, "format": tokenizer.format._asdict()}


def vocabulary_files(tokenizer: Tokenizer) -> dict[str, str | bytes]:
    """Contents by file name: `vocab.txt`, or `vocab.json` and `merges.txt`, or `spiece.model`."""
    if isinstance(tokenizer, SentencePieceTokenizer):
        return {SENTENCEPIECE_FILE: tokenizer.model}
    if isinstance(tokenizer, BertTokenizer):
        return {VOCABULARY_FILE: "".join(token + "\n" for token in tokenizer.vocabulary)}
    assert isinstance(tokenizer, ByteBpeTokenizer)
    ids = {token: i for i, token in enumerate(tokenizer.vocabulary)}
    merges = "".join(f"{left} {right}\n" for left, right in tokenizer.merges)
    return {BPE_VOCABULARY_FILE: json.dumps(ids, ensure_ascii=False) + "\n", MERGES_FILE: f"#version: 0.2\n{merges}"}


def write_vocabulary(directory: str, tokenizer: Tokenizer) -> None:
    """Write `vocabulary_files`."""
    for name, text in vocabulary_files(tokenizer).items():
        write_text(directory, name, text)


def read_settings(directory: str) -> dict[str, Any]:
    """The fields of `tokenizer_config.json`; none without the file."""
    path = os.path.join(directory, TOKENIZER_FILE)
    return read_json(path) if os.path.exists(path) else {}


def read_length(directory: str, positions: int) -> int | None:
    """Tokens of a text that the folder's tokenizer keeps; None: as many as the model has positions."""
    settings = read_settings(directory)
    longest = next((settings[name] for name in LENGTHS if settings.get(name) is not None), positions)
    return int(longest) if isinstance(longest, (int, float)) and 2 < longest < positions else None


def settings_of(tokenizer: Tokenizer, max_seq_length: int) -> dict[str, Any]:
    """The fields of `tokenizer_config.json` for a tokenizer that keeps so many tokens of a text."""
    settings = {LENGTH: max_seq_length}
    if isinstance(tokenizer, BertTokenizer):
        rules = tokenizer.normalization.fields
        return {**settings, "tokenizer_class": "BertTokenizer", "do_lower_case": rules.pop("lower_case"), **rules}
    if isinstance(tokenizer, SentencePieceTokenizer):
        # Its model has the rules for case and accents itself.
        return {**settings, "do_lower_case": False, "keep_accents": True}
    return {**settings, "tokenizer_class": "RobertaTokenizer", "add_prefix_space": False}
