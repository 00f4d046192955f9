"""The base of tokenizers, and the formats of sequences."""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

WORDPIECE, BYTE_BPE, SENTENCEPIECE = "wordpiece", "byte_bpe", "sentencepiece"
# The algorithms in messages.
TITLES = {WORDPIECE: "word pieces", BYTE_BPE: "byte-level BPE", SENTENCEPIECE: "SentencePiece"}

# Tokens of released vocabularies that no text has.
UNUSED = re.compile(r"\[unused\d+\]")
_BATCH_TEXTS = 1000


class SequenceFormat(NamedTuple):
    """The special tokens of a vocabulary, and how a model reads texts."""

    cls: str = "[CLS]"  # begins a sequence
    sep: str = "[SEP]"  # ends each text
    pad: str = "[PAD]"  # beyond the end
    unk: str = "[UNK]"  # a word that the vocabulary lacks
    mask: str = "[MASK]"  # a token to fill in
    pair_separators: int = 1  # number of separators between the texts of a pair; one ends the sequence
    has_segments: bool = True  # the second text of a pair and the separator after it have segment id 1, not 0

    @property
    def tokens(self) -> dict[str, str]:
        """The special tokens by attribute."""
        return dict(zip(self._fields[:5], self[:5], strict=True))


_BERT = SequenceFormat()
_ROBERTA = SequenceFormat("<s>", "</s>", "<pad>", "<unk>", "<mask>", pair_separators=2, has_segments=False)
# By the model that a format is known from. DistilBERT's is also that of KLUE's RoBERTa, RoBERTa's also XLM-RoBERTa's
# and CamemBERT's, BERT's also DeBERTa's.
FORMATS = {
    "bert": _BERT,
    "distilbert": _BERT._replace(has_segments=False),
    "modernbert": _BERT._replace(has_segments=False),
    "albert": _BERT._replace(pad="<pad>", unk="<unk>"),
    "roberta": _ROBERTA,
    "mpnet": _ROBERTA._replace(unk="[UNK]"),
}
# Formats by algorithm, the default first. MPNet's vocabulary contains BERT's special tokens.
FORMATS_OF = {
    WORDPIECE: ("bert", "mpnet"),
    BYTE_BPE: ("roberta", "modernbert"),
    SENTENCEPIECE: ("albert", "roberta", "bert"),
}


def default_format(algorithm: str) -> SequenceFormat:
    """The format of a vocabulary whose files do not say it."""
    return FORMATS[FORMATS_OF[algorithm][0]]


def stored_format(spec: Mapping[str, Any]) -> SequenceFormat:
    """The format that a `vocab_spec.json` records; TypeError or ValueError if it is none."""
    return default_format(spec.get("algorithm", WORDPIECE))._replace(**spec.get("format", {}))


def format_of(algorithm: str, vocabulary: Iterable[str], has_segments: bool = True) -> SequenceFormat:
    """The last of `FORMATS_OF` whose special tokens are in a vocabulary, or the default; perhaps without segments."""
    tokens = set(vocabulary)
    known = (FORMATS[name] for name in reversed(FORMATS_OF[algorithm]))
    format_ = next((row for row in known if tokens.issuperset(row.tokens.values())), default_format(algorithm))
    return format_._replace(has_segments=format_.has_segments and has_segments)


class EncodedTexts(NamedTuple):
    """Tokens of many texts with their offsets."""

    ids: np.ndarray  # int32 [tokens]; those of texts[i] are ids[row_splits[i]:row_splits[i + 1]]
    row_splits: np.ndarray  # int64 [texts + 1]
    starts: np.ndarray  # int64 [tokens], first character of each token, counted in its text
    ends: np.ndarray  # int64 [tokens], one past its last character


class Tokenizer:
    """A vocabulary, its tokenization, and the format of sequences for models that use it."""

    algorithm = ""  # as `vocab_spec.json` names it
    vocabulary: tuple[str, ...]
    format: SequenceFormat
    # Those of the format, and the ids of its special tokens (`_take_format`).
    pair_separators: int
    has_segments: bool
    cls_id: int
    sep_id: int
    pad_id: int
    unk_id: int
    mask_id: int
    # The tokens of a word do not depend on its context; in byte-level BPE they include the space before it.
    words_stand_alone = True

    @property
    def is_suffix(self) -> np.ndarray:
        """Bool [V]: the token continues the word before it."""
        raise NotImplementedError

    @property
    def at_begin(self) -> np.ndarray | None:
        """Int32 [V]: a text's first token for each that follows a space, "cat" for "Ġcat"; None: words stand alone."""
        return None

    @property
    def token_texts(self) -> Sequence[str]:
        """Text of each token as a reader sees it, with the space before it: " cat" for "Ġcat"; "##s" as it is."""
        return self.vocabulary

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """`encode(texts)` with the source characters of each token."""
        raise NotImplementedError

    def encode_words(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """`encode` of words with a space before each."""
        return self.encode(words)

    def _take_format(self, format_: SequenceFormat, ids: Mapping[str, int], also: Sequence[str] = ()) -> None:
        """Set them; ValueError if `ids`, by token, lack a special token or one of `also`."""
        special = format_.tokens
        if missing := [token for token in (*special.values(), *also) if token not in ids]:
            raise ValueError(
                f"the vocabulary of {len(ids)} tokens lacks {', '.join(missing[:5])}; "
                f"it needs all of {', '.join(special.values())}, at any ids"
                + (f", and all {len(also)} characters for bytes" if also else "")
            )
        self.format = format_
        self.pair_separators, self.has_segments = format_.pair_separators, format_.has_segments
        for name, token in special.items():
            setattr(self, f"{name}_id", ids[token])

    def tokenize(self, text: str) -> list[str]:
        """The tokens of one text."""
        return [self.vocabulary[i] for i in self.encode([text])[0]]

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        """The token ids of each text."""
        raise NotImplementedError

    def encode(self, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of many texts, without special tokens; TypeError for one str.

        Returns int32 [tokens], and int64 [texts + 1]: the ids of text i are ids[row_splits[i]:row_splits[i + 1]].
        """
        ids, lengths = [np.zeros(0, np.int32)], [0]
        for batch in batches_of(texts):
            for row in self._ids_of(batch):
                ids.append(np.array(row, np.int32))
                lengths.append(len(row))
        return np.concatenate(ids), np.cumsum(lengths, dtype=np.int64)


def batches_of(texts: Iterable[str]) -> Iterator[list[str]]:
    """Texts in lists, as the libraries take them: UTF-8 has no lone surrogates."""
    if isinstance(texts, str):
        raise TypeError("encode takes an iterable of str, not one str; use encode([text])")
    clean = (text.encode("utf-8", "replace").decode() for text in texts)
    while batch := list(itertools.islice(clean, _BATCH_TEXTS)):
        yield batch
