"""Byte-level BPE, the tokenization of GPT-2 and RoBERTa, with the `tokenizers` library.

GPT-2's pattern cuts a text into words with their leading space; their UTF-8 bytes are written as 256 printable
characters ("Ġ" is the space); an ordered list of merges joins them. No token is ever unknown.
`byte_bpe_graph.GraphByteBpe` is the same in a graph.
"""

import functools
import itertools
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from bert_keras.tokenizers.protocol import BYTE_BPE, FORMATS, EncodedTexts, SequenceFormat, Tokenizer, batches_of

# RoBERTa's, in the order of their ids.
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
SPACE = "Ġ"
# What `vocab_spec.json` says of a `ByteBpeTokenizer` that is not RoBERTa's.
BPE_FIELDS = ("nfc", "added")
# The character classes of GPT-2's pattern, each with the pattern of its complement.
LETTER, NUMBER, WHITE_SPACE = 1, 2, 3
_NOT_OF_CLASS = {LETTER: r"\P{L}+", NUMBER: r"\P{N}+", WHITE_SPACE: r"\S+"}
_CODE_POINTS, _PAGE = 0x110000, 0x100


def words(texts: Iterable[str]) -> Iterator[str]:
    """Cut texts by GPT-2's pattern into words, in the 256 characters for bytes: "a cat" -> "a", "Ġcat"."""
    split = pre_tokenizer().pre_tokenize_str
    for text in texts:
        yield from (word for word, _ in split(text))


@functools.cache
def pre_tokenizer():
    from tokenizers import pre_tokenizers

    return pre_tokenizers.ByteLevel(add_prefix_space=False)


@functools.cache
def character_classes() -> np.ndarray:
    """int8 [0x110000]: the class of each code point in GPT-2's pattern (0: none), taken from the library.

    So the served graph cuts words as training did, whichever Unicode version the library has.
    """
    from tokenizers import Regex, pre_tokenizers

    classes = np.zeros(_CODE_POINTS, np.int8)
    for number, others in _NOT_OF_CLASS.items():
        members = pre_tokenizers.Split(Regex(others), "removed")
        # In small parts: the library's time grows faster than the text.
        for first in range(0, _CODE_POINTS, _PAGE):
            if 0xD800 <= first <= 0xDFFF:  # surrogates are not characters
                continue
            for _, (start, end) in members.pre_tokenize_str("".join(map(chr, range(first, first + _PAGE)))):
                classes[first + start : first + end] = number
    return classes


def spaces_around(vocabulary: Sequence[str]) -> np.ndarray:
    """int64 [V, 2]: the number of spaces each token begins and ends with; 0 for a token of spaces alone."""
    bare = [token.strip(SPACE) for token in vocabulary]
    ends = [
        (token.index(text), len(token) - token.index(text) - len(text)) if text else (0, 0)
        for token, text in zip(vocabulary, bare, strict=True)
    ]
    return np.array(ends, np.int64).reshape(-1, 2)


def check_order(merges: Sequence[tuple[str, str]]) -> None:
    """Raise ValueError if a merge makes a token that an earlier merge uses; no learned list does.

    The tokens of a word would depend on which of two equal pairs is merged first; the graph merges both at once.
    """
    first_uses: dict[str, int] = {}
    for number, token in ((n, token) for n, merge in enumerate(merges, 1) for token in merge):
        first_uses.setdefault(token, number)
    for number, (left, right) in enumerate(merges, 1):
        if first_uses.get(left + right, number) < number:
            raise ValueError(
                f"merge {number} makes {left + right!r}, which merge {first_uses[left + right]} already uses; give "
                "the merges in the order in which they were learned"
            )


class ByteBpeTokenizer(Tokenizer):
    """GPT-2's encoder, by default with RoBERTa's special tokens.

    Special tokens in a text are text, as in fairseq. RoBERTa's pairs are <s> a </s></s> b </s>, without segments
    (fairseq, models/roberta/hub_interface.py, `encode`). ValueError: a duplicate or missing token.

    Args:
        vocabulary: one token per id.
        merges: pairs of tokens, in the order of merging: ("Ġ", "t").
        format_: special tokens and pairs.
        nfc: a text is composed first (Unicode's normalization form C), as ModernBERT's.
        added: tokens of the vocabulary that are cut out of a text before its words, the longest at each place.
    """

    algorithm = BYTE_BPE
    words_stand_alone = False

    def __init__(
        self,
        vocabulary: Sequence[str],
        merges: Sequence[tuple[str, str]],
        format_: SequenceFormat = FORMATS["roberta"],
        nfc: bool = False,
        added: Sequence[str] = (),
    ):
        self.vocabulary = tuple(vocabulary)
        self.merges = tuple((left, right) for left, right in merges)
        self.nfc, self.added = nfc, tuple(added)
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        if len(ids) < len(self.vocabulary):
            duplicate = next(token for i, token in enumerate(self.vocabulary) if ids[token] != i)
            raise ValueError(f"the vocabulary has the token {duplicate!r} twice; every token must be unique")
        self._take_format(format_, ids, byte_alphabet())
        if missing := [token for token in self.added if token not in ids]:
            raise ValueError(f"the vocabulary lacks the added tokens {', '.join(missing[:5])}")
        self._encode = fast_byte_bpe(ids, self.merges, nfc, self.added).encode_batch

    def __reduce__(self):
        # Beam ships this to every worker: leave out the library's object.
        return ByteBpeTokenizer, (self.vocabulary, self.merges, self.format, self.nfc, self.added)

    @functools.cached_property
    def is_suffix(self) -> np.ndarray:
        """Bool [V]: the token continues the word before it: no leading space, not a special token."""
        special = {*self.format.tokens.values(), *self.added}
        return np.array([not token.startswith(SPACE) and token not in special for token in self.vocabulary])

    @functools.cached_property
    def at_begin(self) -> np.ndarray:
        """int32 [V]: the token without its leading space; itself where the vocabulary has none."""
        ids = {token: i for i, token in enumerate(self.vocabulary)}
        return np.array([ids.get(token.removeprefix(SPACE), i) for token, i in ids.items()], np.int32)

    @property
    def token_texts(self) -> Sequence[str]:
        """See `Tokenizer`; part of a character gives U+FFFD."""
        return [text_of(token) for token in self.vocabulary]

    def _ids_of(self, texts: list[str]) -> Iterable[Sequence[int]]:
        return (encoding.ids for encoding in self._encode(texts, add_special_tokens=False))

    def encode_words(self, words: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
        """`encode` of words with a space before each, the first too (Hugging Face: `add_prefix_space`)."""
        return self.encode(f" {word}" for word in words)

    def encode_with_offsets(self, texts: Iterable[str]) -> EncodedTexts:
        """`encode(texts)` with the source characters of each token, without the spaces at its ends.

        A token of spaces alone keeps them; a token of some bytes of a character comes from that character.
        """
        ids, lengths, places = [np.zeros(0, np.int32)], [0], [np.zeros((0, 2), np.int64)]
        for batch in batches_of(texts):
            composed = [*map(compose, batch)] if self.nfc else [(text, None) for text in batch]
            encodings = self._encode([text for text, _ in composed], add_special_tokens=False)
            for encoding, (_, sources) in zip(encodings, composed, strict=True):
                ids.append(np.array(encoding.ids, np.int32))
                lengths.append(len(encoding.ids))
                offsets = np.array(encoding.offsets, np.int64).reshape(-1, 2) + self._spaces[ids[-1]] * [1, -1]
                places.append(offsets if sources is None else sources[offsets - [0, 1], [0, 1]])
        all_ids = np.concatenate(ids)
        starts, ends = np.concatenate(places).T
        return EncodedTexts(all_ids, np.cumsum(lengths, dtype=np.int64), starts, ends)

    @functools.cached_property
    def _spaces(self) -> np.ndarray:
        return spaces_around(self.vocabulary)


@functools.cache
def joins() -> np.ndarray:
    """bool [0x110000]: NFC may join the code point with the one before it: marks, vowels and finals of Hangul."""
    marks = [unicodedata.category(chr(code)).startswith("M") for code in range(_CODE_POINTS)]
    table = np.array(marks)
    table[0x1161:0x1176] = table[0x11A8:0x11C3] = True
    return table


def compose(text: str) -> tuple[str, np.ndarray | None]:
    """NFC of a text, and int64 [N, 2], the first and one past the last character that each of its N comes from.

    Where a character and those that join it change, each comes from all of them; None: each comes from itself.
    """
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text, None
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    starts = np.flatnonzero(~joins()[codes])
    splits = np.unique([0, *starts, len(text)])
    runs, sources = list[str](), list[tuple[int, int]]()
    for start, end in itertools.pairwise(splits.tolist()):
        runs.append(run := _nfc()(text[start:end]))
        same = run == text[start:end]
        sources += [(i, i + 1) for i in range(start, end)] if same else [(start, end)] * len(run)
    return "".join(runs), np.array(sources, np.int64).reshape(-1, 2)


@functools.cache
def _nfc():
    from tokenizers import normalizers

    return normalizers.NFC().normalize_str


def text_of(token: str) -> str:
    """The text of a token, with its spaces; U+FFFD for part of a character: "Ġcat" -> " cat"."""
    byte_of = _byte_of()
    # A token that was added to a released vocabulary may be of other characters.
    if not byte_of.keys() >= {*token}:
        return token
    return bytes(byte_of[character] for character in token).decode(errors="replace")


@functools.cache
def _byte_of() -> dict[str, int]:
    return {character: byte for byte, character in enumerate(byte_characters())}


def byte_alphabet() -> list[str]:
    """The 256 characters for bytes, by code point."""
    return sorted(pre_tokenizer().alphabet())


def byte_characters() -> list[str]:
    """The 256 characters for bytes, by byte: printable ones are themselves, the others start at U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def fast_byte_bpe(ids: dict[str, int], merges: Sequence[tuple[str, str]], nfc: bool, added: Sequence[str]):
    """The library's tokenizer with the ids of a `ByteBpeTokenizer`."""
    from tokenizers import AddedToken, Tokenizer, models, normalizers

    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=list(merges)))
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.add_tokens([AddedToken(token, normalized=True) for token in added])
    return tokenizer
