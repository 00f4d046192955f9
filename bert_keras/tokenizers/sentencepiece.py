"""SentencePiece models, the tokenization of ALBERT, XLM-RoBERTa, CamemBERT and DeBERTa, with `sentencepiece`.

ALBERT changes a text before SentencePiece sees it: quotation marks, decomposition, accents, lower case. fairseq counts
other special tokens before the model's pieces. `model_with_ids` puts these changes into the model itself, its table of
replacements and its pieces, so that the model alone gives ids and offsets, here and in the graph
(`sentencepiece_graph`).
"""

import base64
import functools
import io
import os
import string
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bert_keras.errors import InputError
from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers.protocol import FORMATS, SENTENCEPIECE, EncodedTexts, SequenceFormat, Tokenizer, batches_of

SPACE = "▁"
# The name of the table of replacements of a model that was made here.
_RULES = "albert"
_COMMA_PENALTY = 100.0
QUOTES = {"``": '"', "''": '"'}
# What DebertaV2Tokenizer replaces.
_BREAKS = dict.fromkeys("\t\n\r", " ")
# Pieces of these continue a word (google-research/albert, create_pretraining_data.py, `_is_start_piece_sp`).
_INSIDE = frozenset(string.ascii_letters + string.punctuation + "€£")


# By kind of models: the tokens before the model's pieces, how many of these have no id, and the tokens after them
# (convert_slow_tokenizer.py of `transformers`).
IDS: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "albert": ((), 0, ()),
    "xlm-roberta": (("<s>", "<pad>", "</s>", "<unk>"), 3, ("<mask>",)),
    "camembert": (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1, ("<mask>",)),
    "deberta-v2": ((), 0, ("[MASK]",)),
}


def model_with_ids(model: bytes, kind: str, lower_case: bool | None = None, keep_accents: bool = True) -> bytes:
    """A SentencePiece model that gives the ids of `transformers`; one made here is returned unchanged.

    The changes of a text are those of the `tokenizers` library, in `transformers`' order; no piece of ALBERT ends with
    a digit and a comma: such pieces lose 100 of their score (`AlbertConverter`). ValueError: it is no model of
    SentencePiece, or one of words or characters. `model`: content of `spiece.model` or another model file. `kind`: a
    key of `IDS`. `lower_case`, `keep_accents`: `do_lower_case` and `keep_accents` of the tokenizer.
    """
    proto = _parsed(model)
    if proto.normalizer_spec.name == _RULES:
        return model
    (first, dropped, last), pieces = IDS[kind], [*proto.pieces]
    del proto.pieces[:]
    _append(proto, first)
    proto.pieces.extend(pieces[dropped:])
    _append(proto, last)
    for piece in proto.pieces if kind == "albert" else ():
        if piece.piece[-1:] == "," and piece.piece[-2:-1].isdigit():
            piece.score -= _COMMA_PENALTY
    steps = (*(() if keep_accents else ("NFKD", "StripAccents")), *(("Lowercase",) if lower_case else ()))
    if kind == "deberta-v2" and not proto.normalizer_spec.precompiled_charsmap:
        return _with_rules(proto, (*steps, "NFC"), _BREAKS)
    return _with_rules(proto, steps, QUOTES if kind == "albert" else {})


def with_tokens(model: bytes, tokens: Iterable[str]) -> bytes:
    """A model with further tokens, which no text has."""
    proto = _parsed(model)
    _append(proto, tokens)
    return proto.SerializeToString(deterministic=True)


def _append(proto: Any, tokens: Iterable[str]) -> None:
    types = type(proto).SentencePiece
    for token in tokens:
        proto.pieces.add(piece=token, type=types.UNKNOWN if token == "<unk>" else types.CONTROL)


def _with_rules(proto: Any, steps: tuple[str, ...], replaced: dict[str, str]) -> bytes:
    """The model with `steps` (normalizers of `tokenizers`) and replacements before its own table."""
    proto.normalizer_spec.name = _RULES
    if steps or replaced:
        charsmap = _charsmap(proto.normalizer_spec.SerializeToString(), steps, tuple(replaced.items()))
        proto.normalizer_spec.precompiled_charsmap = charsmap
    return proto.SerializeToString(deterministic=True)


@functools.lru_cache(4)  # takes a second or two, and a folder is read more than once
def _charsmap(normalizer_spec: bytes, steps: tuple[str, ...], replaced: tuple[tuple[str, str], ...]) -> bytes:
    """The table of replacements: the changes of a text, then the model's own."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    from tokenizers import normalizers

    model_rules = sentencepiece_model_pb2.ModelProto()
    model_rules.normalizer_spec.MergeFromString(normalizer_spec)
    fold = normalizers.Sequence([getattr(normalizers, step)() for step in steps]).normalize_str
    characters = [chr(code) for code in range(1, ut.CODE_POINTS) if not 0xD800 <= code <= 0xDFFF]
    # The table may have rules for characters with their marks, and for the parts of Korean syllables.
    decomposed = (unicodedata.normalize(form, text) for form in ("NFD", "NFKD") for text in characters)
    texts = [*dict.fromkeys([*characters, *(text for text in decomposed if len(text) > 1)])]
    normalizer = sentencepiece.SentencePieceNormalizer(model_proto=model_rules.SerializeToString())
    folded = normalizer.normalize([fold(text) for text in texts])
    return _compiled({text: new for text, new in zip(texts, folded, strict=True) if text != new} | dict(replaced))


def model_of_fast(fields: dict[str, Any]) -> bytes:
    """The `model_with_ids` of the content of a `tokenizer.json`; its special tokens after the pieces are added."""
    from sentencepiece import sentencepiece_model_pb2

    normalizer = fields.get("normalizer") or {}
    steps = {step["type"]: step for step in normalizer.get("normalizers", [normalizer]) if "type" in step}
    proto, types = sentencepiece_model_pb2.ModelProto(), sentencepiece_model_pb2.ModelProto.SentencePiece
    special = {token["content"] for token in fields.get("added_tokens") or () if token.get("special")}
    for number, (token, score) in enumerate(fields["model"]["vocab"]):
        kind = types.CONTROL if token in special else types.NORMAL
        kind = types.UNKNOWN if number == fields["model"].get("unk_id") else kind
        proto.pieces.add(piece=token, score=score, type=kind)
    charsmap = steps.get("Precompiled", {}).get("precompiled_charsmap") or ""
    proto.normalizer_spec.precompiled_charsmap = base64.b64decode(charsmap)
    rewrites = tuple(name for name in steps if name in ("NFC", "NFKD", "StripAccents", "Lowercase"))
    quotes = any(step.get("pattern") == {"String": "``"} for step in normalizer.get("normalizers", ()))
    return _with_rules(proto, rewrites, QUOTES if quotes else {} if charsmap else _BREAKS)


def precompiled(model: bytes, unigram: bool = False) -> tuple[list[tuple[str, float]], bytes]:
    """The pieces with their scores, and the table of replacements, as the `tokenizers` library takes them.

    InputError: with `unigram`, the model is another one.
    """
    proto = _parsed(model)
    if unigram and proto.trainer_spec.model_type != proto.trainer_spec.UNIGRAM:
        raise InputError("a BPE model of SentencePiece cannot be written as tokenizer.json; write with --to bert-tfx")
    return [(piece.piece, piece.score) for piece in proto.pieces], proto.normalizer_spec.precompiled_charsmap


def _parsed(model: bytes):
    from google.protobuf.message import DecodeError
    from sentencepiece import sentencepiece_model_pb2

    try:
        proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    except DecodeError as error:
        raise ValueError(f"it is no model of SentencePiece ({error}); copy it again") from error
    if not proto.pieces:
        raise ValueError("it is no model of SentencePiece (it has no pieces); copy it again")
    if proto.trainer_spec.model_type not in (proto.trainer_spec.UNIGRAM, proto.trainer_spec.BPE):
        raise ValueError("it is neither a unigram nor a BPE model of SentencePiece")
    return proto


def _compiled(rules: dict[str, str]) -> bytes:
    """SentencePiece's table of replacements; only its trainer compiles them, so a model of one letter is trained."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    lines = ("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in rule) + "\n" for rule in rules.items())
    trained = io.BytesIO()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rules.tsv")
        with open(path, "w", encoding="ascii") as file:
            file.writelines(lines)
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter("a"),
            model_writer=trained,
            model_type="char",
            hard_vocab_limit=False,
            normalization_rule_tsv=path,
            minloglevel=2,
        )
    return sentencepiece_model_pb2.ModelProto.FromString(trained.getvalue()).normalizer_spec.precompiled_charsmap


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model, by default with ALBERT's special tokens; special tokens in a text are text.

    `model`: result of `model_with_ids`. `format_`: special tokens and pairs. ValueError: a special token is missing.
    """

    algorithm = SENTENCEPIECE

    def __init__(self, model: bytes, format_: SequenceFormat = FORMATS["albert"]):
        import sentencepiece

        self.model = model
        try:
            self._encode = sentencepiece.SentencePieceProcessor(model_proto=model).encode
        except RuntimeError as error:
            raise ValueError(f"SentencePiece does not load the model ({error})") from error
        self.vocabulary = tuple(piece for piece, _ in precompiled(model)[0])
        self._take_format(format_, {token: i for i, token in enumerate(self.vocabulary)})

    def __reduce__(self):
        # Beam ships this to every worker: leave out the library's object.
        return SentencePieceTokenizer, (self.model, self.format)

    @functools.cached_property
    def is_suffix(self) -> np.ndarray:
        """Bool [V]: the token continues the word before it; of ASCII as ALBERT's code for whole words has it."""
        special = {*self.format.tokens.values()}
        return np.array([token not in special and _continues_word(token) for token in self.vocabulary])

    @property
    def token_texts(self) -> Sequence[str]:
        return [token.replace(SPACE, " ") for token in self.vocabulary]

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        return self._encode(texts, num_threads=1)

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """`encode(texts)` with the source characters of each token, without white space before them."""
        read: list[str] = []
        rows = [np.zeros((0, 3), np.int64)]
        for chunk in batches_of(texts):
            read += chunk
            for encoded in self._encode(chunk, out_type="immutable_proto", num_threads=1):
                rows.append(np.array([(p.id, p.begin, p.end) for p in encoded.pieces], np.int64).reshape(-1, 3))
        ids, starts, ends = np.concatenate(rows).T
        splits = np.cumsum([*map(len, rows)])
        first = np.repeat(np.cumsum([0, *map(len, read)])[:-1], np.diff(splits))
        code_points = np.frombuffer("".join(read).encode("utf-32-le"), np.uint32)
        used = np.append(np.flatnonzero(~ut.white_space()[code_points]), len(code_points))
        starts = np.minimum(used[np.searchsorted(used, starts + first)] - first, ends)
        return EncodedTexts(ids.astype(np.int32), splits, starts, ends)


def _continues_word(token: str) -> bool:
    is_piece = not token.startswith("<")
    return is_piece and all(map(_is_inside, token)) and (len(token) > 1 or _is_letter(token))


def _is_inside(character: str) -> bool:
    # Beyond ALBERT's English: the letters of other alphabets, but no ideographs, each of which BERT takes as a word.
    isolated = ut.fold_table(lower_case=False).kind[ord(character)] & ut.ISOLATED
    return character in _INSIDE or (_is_letter(character) and not isolated)


def _is_letter(character: str) -> bool:
    """True for marks, too."""
    return unicodedata.category(character)[0] in "LM"
