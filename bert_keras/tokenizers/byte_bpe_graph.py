"""Byte-level BPE as a TensorFlow graph, for the SavedModel; token for token equal to `byte_bpe.ByteBpeTokenizer`.

All ops are TensorFlow's own: TensorFlow Text's BPE is newer than many TensorFlow Serving binaries, and RE2 has no
look-ahead, which GPT-2's pattern needs. The pattern is local, so it is written in closed form: the start of a word
depends on the character, the one before, and up to two after it.

Legend: B texts, N code points of all texts, Y their bytes in UTF-8, S symbols of all words during merging, W words,
P tokens.
"""

import re

import numpy as np
import tensorflow as tf
import tensorflow_text

from bert_keras.tokenizers.byte_bpe import (
    WHITE_SPACE,
    ByteBpeTokenizer,
    byte_characters,
    character_classes,
    joins,
    spaces_around,
)
from bert_keras.tokenizers.wordpiece_graph import GraphTokens, utf8_length

_NO_MERGE = 1 << 40  # above every rank
# Bytes of a long word from one part to the next, and how far a part reaches into the next.
_STRIDE, _OVERLAP, _LONG = 64, 32, 128
# Of Unicode, in RE2's words.
_WHITE_SPACE_AT_END = r"[\pZ\s\x{0b}\x{85}]+$"
_APOSTROPHE, _SPACE = ord("'"), ord(" ")
# NFC changes nothing below; what TensorFlow writes for a noncharacter; a byte that UTF-8 never has.
_FIRST_MARK, _REPLACEMENT, _BREAK = 0x300, 0xFFFD, b"\xff"
# Suffixes that GPT-2's pattern cuts off after an apostrophe that begins a word.
_ONE_LETTER, _TWO_LETTERS = "stmd", (("r", "e"), ("v", "e"), ("l", "l"))


class GraphByteBpe(tf.Module):
    """Texts to byte-level BPE ids, in a graph that `tf.saved_model.save` stores without any other file.

    Equal to `ByteBpeTokenizer.encode` of `bytes.decode("utf-8", "ignore")`. A word takes one step per distinct pair
    merged in it; each step covers all words of the batch, and long words are cut into parts that overlap. `tokenizer`:
    its merges must be in order (`byte_bpe.check_order`).
    """

    def __init__(self, tokenizer: ByteBpeTokenizer):
        super().__init__()
        vocabulary = tokenizer.vocabulary
        self._mask, self._mask_id = tokenizer.format.mask, tokenizer.mask_id
        ids = {token: number for number, token in enumerate(vocabulary)}
        classes = character_classes()
        changes = np.flatnonzero(np.diff(classes, prepend=-1))
        self._class_from, self._class = changes.astype(np.int32), classes[changes].astype(np.int32)
        self._id_of_byte = np.array([ids[character] for character in byte_characters()], np.int32)
        self._nfc, self._added = tokenizer.nfc, sorted(tokenizer.added, key=lambda token: (-len(token), token))
        # By the token's number, from 1.
        self._added_ids = np.array([0, *(ids[token] for token in self._added)], np.int32)
        self._bytes = np.array([len(token) for token in vocabulary], np.int64)
        self._bytes[self._added_ids[1:]] = [len(token.encode()) for token in self._added]
        joined = np.diff(joins(), prepend=False)
        self._joins_from = np.flatnonzero(joined).astype(np.int32)
        self._spaces = spaces_around(vocabulary)
        self._merged = np.array([ids[left + right] for left, right in tokenizer.merges] or [0], np.int32)
        self._size = len(vocabulary)
        # A table needs at least one entry: -1 is never a pair.
        ranks = {-1: _NO_MERGE} | {
            ids[left] * self._size + ids[right]: number for number, (left, right) in enumerate(tokenizer.merges)
        }
        entries = tf.lookup.KeyValueTensorInitializer(list(ranks), list(ranks.values()), tf.int64, tf.int64)
        self._ranks = tf.lookup.StaticHashTable(entries, default_value=_NO_MERGE)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Token ids int32 [B, (tokens)] of `texts` string [B], UTF-8, without special tokens."""
        # Strings live on the CPU; the small ops between them must not move to a GPU and back.
        with tf.device("CPU:0"):
            return self._tokenize(tf.strings.unicode_decode(texts, "UTF-8", errors="ignore"))[0]

    def with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Like `__call__`, but the mask is one token, which takes the white space before it, as in `transformers`."""
        with tf.device("CPU:0"):
            parts = tf.strings.split(texts, self._mask)
            is_last = (
                tf.range(tf.size(parts.values, tf.int64)) == tf.gather(parts.row_limits(), parts.value_rowids()) - 1
            )
            before_mask = tf.strings.regex_replace(parts.values, _WHITE_SPACE_AT_END, "")
            ids = self(tf.where(is_last, parts.values, before_mask))
            masks = tf.RaggedTensor.from_row_lengths(
                tf.fill([tf.reduce_sum(tf.cast(~is_last, tf.int32))], self._mask_id), tf.cast(~is_last, tf.int64)
            )
            return parts.with_values(tf.concat([ids, masks], axis=1)).merge_dims(1, 2)

    def with_offsets(self, texts: tf.Tensor) -> GraphTokens:
        """Tokens and offsets of `texts` string [B]; equal to `ByteBpeTokenizer.encode_with_offsets`."""
        with tf.device("CPU:0"):
            decoded, at_byte = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
            ids, first_byte, sources, source_ends = self._tokenize(decoded)
            spaces = tf.gather(self._spaces, ids.values)
            last_byte = first_byte + tf.gather(self._bytes, ids.values) - 1 - spaces[:, 1]
            starts, last = tf.gather(sources, first_byte + spaces[:, 0]), tf.gather(source_ends, last_byte)
            text_start = tf.gather(decoded.row_starts(), ids.value_rowids())
            byte_ends = tf.gather(at_byte.values, last) + utf8_length(tf.gather(decoded.values, last))
            return GraphTokens(
                ids, starts - text_start, last + 1 - text_start, tf.gather(at_byte.values, starts), byte_ends
            )

    def encode_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Token ids int32 [W, (tokens)] of words, code points int32 [W, (code points)], with a space before each."""
        with tf.device("CPU:0"):
            space = tf.fill([words.nrows(), 1], _SPACE)
            return self._tokenize(tf.concat([space, words], axis=1))[0]

    def _tokenize(self, decoded: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Ids of code points, int32 [B, (...)]; each's first byte, int64 [P]; the code points of a byte, int64 [Y]."""
        first = last = tf.range(tf.size(decoded.values, tf.int64))
        if self._nfc:
            decoded, first, last = tf.cond(
                tf.reduce_any(decoded.values >= _FIRST_MARK),
                lambda: self._compose(decoded),
                lambda: (decoded, first, last),
            )
        code_points, row = decoded.values, decoded.value_rowids()
        part, added = self._cut(decoded) if self._added else (row, tf.zeros([0], tf.int32))
        word = tf.cumsum(tf.cast(self._begins_word(code_points, part), tf.int64)) - 1  # [N]
        octets, source = _utf8(code_points)
        ids, first_byte = self._merge_words(tf.gather(self._id_of_byte, octets), tf.gather(word, source))
        if self._added:
            part = tf.gather(part, tf.gather(source, first_byte))
            number = tf.gather(added, part)
            begins = tf.concat([[True], part[1:] != part[:-1]], axis=0)[: tf.size(part)]
            kept = (number == 0) | begins
            ids = tf.where(number > 0, tf.gather(self._added_ids, number), ids)
            ids, first_byte = tf.boolean_mask(ids, kept), tf.boolean_mask(first_byte, kept)
        text = tf.gather(row, tf.gather(source, first_byte))
        tokens = tf.RaggedTensor.from_value_rowids(ids, text, decoded.nrows(), validate=False)
        return tokens, first_byte, tf.gather(first, source), tf.gather(last, source)

    def _compose(self, decoded: tf.RaggedTensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """NFC of code points int32 [B, (code points)], and the first and last old one of each (`byte_bpe.compose`)."""
        # TensorFlow Text's Unicode is older than that of `tokenizers`: 27 marks are not put into canonical order.
        code_points, row = decoded.values, decoded.value_rowids()
        joins = tf.searchsorted(self._joins_from, code_points, side="right") % 2 == 1
        same_text = tf.concat([[False], row[1:] == row[:-1]], axis=0)[: tf.size(row)]
        runs = tf.RaggedTensor.from_value_rowids(code_points, tf.cumsum(tf.cast(~(joins & same_text), tf.int64)) - 1)
        written = tf.strings.unicode_encode(runs, "UTF-8")
        normalized = tensorflow_text.normalize_utf8(written, "NFC")
        composed = tf.strings.unicode_decode(normalized, "UTF-8")
        run = composed.value_rowids()
        first, last = tf.gather(runs.row_starts(), run), tf.gather(runs.row_limits(), run) - 1
        # TensorFlow does not write noncharacters, which begin a run.
        values = tf.where(composed.values == _REPLACEMENT, tf.gather(code_points, first), composed.values)
        texts = tf.RaggedTensor.from_value_rowids(values, tf.gather(row, first), decoded.nrows(), validate=False)
        is_same = tf.gather(written == normalized, run)
        itself = tf.range(tf.size(run, tf.int64)) - tf.gather(composed.row_starts(), run) + first
        return texts, tf.where(is_same, itself, first), tf.where(is_same, itself, last)

    def _cut(self, decoded: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Cut at added tokens: the part of each code point, int64 [N], and each part's token, int32, 0 for text."""
        pattern = "|".join(map(re.escape, self._added))  # RE2 takes the first that fits, so the longest
        marked = tf.strings.regex_replace(
            tf.strings.unicode_encode(decoded, "UTF-8"), f"({pattern})", _BREAK + rb"\1" + _BREAK
        )
        parts = tf.strings.split(marked, _BREAK)
        lengths = tf.strings.length(parts.values, "UTF8_CHAR")
        number = tf.range(tf.size(parts.values, tf.int64)) - tf.gather(parts.row_starts(), parts.value_rowids())
        found = tf.argmax(parts.values[:, None] == tf.constant(self._added), axis=1, output_type=tf.int32) + 1
        return tf.repeat(tf.range(tf.size(lengths, tf.int64)), lengths), tf.where(number % 2 == 1, found, 0)

    def _begins_word(self, code_points: tf.Tensor, row: tf.Tensor) -> tf.Tensor:
        """Bool [N]: a word of GPT-2's pattern begins at code points int32 [N] of the texts `row` int64 [N].

        's|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+
        """

        def shifted(values, by):
            """The values `by` places later (earlier if negative), -1 beyond the text."""
            size = tf.size(values)
            padded, rows = (tf.pad(x, [[abs(by)] * 2], constant_values=-1) for x in (values, row))
            begin = abs(by) + by
            return tf.where(rows[begin : begin + size] == row, padded[begin : begin + size], -1)

        kind = tf.gather(self._class, tf.searchsorted(self._class_from, code_points, side="right") - 1)
        before, after = shifted(kind, -1), shifted(kind, 1)
        # The last character of a run of white space belongs to the next word, which only a space may begin.
        space_begins = (before != WHITE_SPACE) | ((after != WHITE_SPACE) & (after >= 0))
        other_begins = (shifted(code_points, -1) != _SPACE) & (kind != before)
        begins = tf.where(kind == WHITE_SPACE, space_begins, other_begins)
        next_1, next_2 = shifted(code_points, 1), shifted(code_points, 2)
        apostrophe = begins & (code_points == _APOSTROPHE)
        short = apostrophe & _any([next_1 == ord(letter) for letter in _ONE_LETTER])
        long = apostrophe & _any([(next_1 == ord(a)) & (next_2 == ord(b)) for a, b in _TWO_LETTERS])
        inside, behind = _later(short | long, 1), _later(short, 2) | _later(long, 3)
        # A new word begins after the last letter.
        return (begins & ~inside) | behind

    def _merge_words(self, ids: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merge symbols int32 [S] (at first bytes) of words int64 [S]; returns ids int32 [P] and first bytes int64 [P].

        The steps of `_merge` grow with the length of a word, so a long word is merged in parts that overlap. Two parts
        meet at a token that both have at the same byte: the tokens of the word are those of the first before it, and
        those of the second from it on (decision 40). Parts that do not meet become one part, as in "aaaa".
        """
        size = tf.size(ids, tf.int64)
        word_starts = tf.concat([[True], word[1:] != word[:-1]], axis=0)[:size]
        at = tf.range(size)
        in_word = at - tf.gather(tf.where(word_starts)[:, 0], word)
        word_ends = tf.cumsum(tf.math.bincount(tf.cast(word, tf.int32), dtype=tf.int64))

        def merge_parts(begins, *_):
            starts = tf.where(begins)[:, 0]
            of_word = tf.gather(word, starts)
            next_starts = tf.concat([starts[1:], [size]], axis=0)[: tf.size(starts)]
            ends = tf.minimum(next_starts + _OVERLAP, tf.gather(word_ends, of_word))
            parts = tf.ragged.range(starts, ends)
            merged, first = self._merge(tf.gather(ids, parts.values), parts.value_rowids())
            part, first = tf.gather(parts.value_rowids(), first), tf.gather(parts.values, first)
            # The token at each byte of the begin of a part; these begins do not overlap.
            in_begin = tf.where(first < tf.gather(starts, part) + _OVERLAP)
            begun = tf.scatter_nd(tf.gather(first, in_begin), tf.gather_nd(merged, in_begin) + 1, [size])
            agrees = (first >= tf.gather(next_starts, part)) & (tf.gather(begun, first) == merged + 1)
            meets = tf.where(agrees, first, size)
            meets = tf.math.unsorted_segment_min(meets, part, tf.size(starts))
            is_last = next_starts == tf.gather(word_ends, of_word)
            fails = ~is_last & (meets == size)
            limits = tf.where(is_last, next_starts, meets)
            kept = (first < tf.gather(limits, part)) & (first >= tf.gather(tf.concat([[0], limits], axis=0), part))
            joined = tf.boolean_mask(next_starts, fails)
            begins = tf.tensor_scatter_nd_update(begins, joined[:, None], tf.fill([tf.size(joined)], False))
            return begins, tf.reduce_any(fails), tf.boolean_mask(merged, kept), tf.boolean_mask(first, kept)

        def merge_long():
            return tf.while_loop(
                lambda begins, fails, ids, first: fails,
                merge_parts,
                (in_word % _STRIDE == 0, tf.constant(True), ids, at),
                shape_invariants=tuple(tf.TensorShape(shape) for shape in ([None], [], [None], [None])),
            )[2:]

        return tf.cond(tf.reduce_any(in_word >= _LONG), merge_long, lambda: self._merge(ids, word))

    def _merge(self, ids: tf.Tensor, word: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Merge symbols int32 [S] of words int64 [S]; returns ids int32 [P] and the first symbol of each, int64 [P]."""

        def ranks_of(ids, word):
            """int64 [S]: the rank of each symbol with its successor in the word; _NO_MERGE if there is none."""
            pair = tf.cast(ids[:-1], tf.int64) * self._size + tf.cast(ids[1:], tf.int64)
            ranks = tf.where(word[:-1] == word[1:], self._ranks.lookup(pair), _NO_MERGE)
            return tf.pad(ranks, [[0, tf.minimum(tf.size(ids), 1)]], constant_values=_NO_MERGE)

        def step(ids, word, first, ranks):
            """Merge, in each word, all pairs of its lowest rank."""
            lowest = tf.gather(tf.math.segment_min(ranks, word), word)
            place = tf.where((ranks == lowest) & (ranks < _NO_MERGE))[:, 0]
            # Overlapping pairs, as in "aaa": every second one, from the left.
            begins = tf.concat([[True], place[1:] > place[:-1] + 1], axis=0)[: tf.size(place)]
            run_start = tf.gather(tf.boolean_mask(place, begins), tf.cumsum(tf.cast(begins, tf.int32)) - 1)
            place = tf.boolean_mask(place, (place - run_start) % 2 == 0)[:, None]
            merged = tf.gather(self._merged, tf.gather_nd(ranks, place))
            ids = tf.tensor_scatter_nd_update(ids, place, merged)
            consumed = tf.scatter_nd(place + 1, tf.ones(tf.size(place), tf.int32), tf.shape(ids, tf.int64))
            ids, word, first = (tf.boolean_mask(values, consumed == 0) for values in (ids, word, first))
            return ids, word, first, ranks_of(ids, word)

        first = tf.range(tf.size(ids, tf.int64))
        state = ids, word, first, ranks_of(ids, word)
        ids, _, first, _ = tf.while_loop(
            lambda ids, word, first, ranks: tf.reduce_any(ranks < _NO_MERGE),
            step,
            state,
            shape_invariants=tuple(tf.TensorShape([None]) for _ in state),
        )
        return ids, first


def _any(conditions: list[tf.Tensor]) -> tf.Tensor:
    return tf.reduce_any(tf.stack(conditions), axis=0)


def _later(condition: tf.Tensor, by: int) -> tf.Tensor:
    """Shift a condition bool [N] by `by` places."""
    return tf.pad(condition, [[by, 0]])[: tf.size(condition)]


def _utf8(code_points: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Encode code points int32 [N] in UTF-8: bytes int32 [Y] and the index of each byte's code point, int64 [Y]."""
    length = utf8_length(code_points)
    source = tf.repeat(tf.range(tf.size(code_points, tf.int64)), length)
    number = tf.range(tf.size(source, tf.int64)) - tf.gather(tf.cumsum(length, exclusive=True), source)
    length = tf.gather(length, source)
    bits = tf.bitwise.right_shift(tf.gather(code_points, source), tf.cast(6 * (length - 1 - number), tf.int32))
    lead = tf.gather([0, 0, 0b11000000, 0b11100000, 0b11110000], length)
    return tf.where(number == 0, lead + bits, 0b10000000 + tf.bitwise.bitwise_and(bits, 0b111111)), source
