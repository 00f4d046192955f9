"""SentencePiece as a TensorFlow graph, for the SavedModel; token for token equal to `sentencepiece`'s tokenizer.

The op is TensorFlow Text's, which TensorFlow Serving has; it holds the model.

Legend: B texts, N code points of all texts, W words.
"""

import tensorflow as tf
import tensorflow_text

from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.wordpiece_graph import GraphTokens, is_space, utf8_length


class GraphSentencePiece(tf.Module):
    """Texts to SentencePiece ids, in a graph that `tf.saved_model.save` stores without any other file.

    Equal to `SentencePieceTokenizer.encode` of `bytes.decode("utf-8", "ignore")`.
    """

    def __init__(self, tokenizer: SentencePieceTokenizer):
        super().__init__()
        self._mask, self._mask_id = tokenizer.format.mask, tokenizer.mask_id
        self._op = tensorflow_text.SentencepieceTokenizer(tokenizer.model)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Token ids int32 [B, (tokens)] of `texts` string [B], UTF-8, without special tokens."""
        with tf.device("CPU:0"):
            return self._op.tokenize(_valid(texts))

    def with_masks(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Like `__call__`, but the mask is one token; the texts around it are read as texts of their own."""
        with tf.device("CPU:0"):
            parts = tf.strings.split(texts, self._mask)
            ids = self(parts.values)
            masks = tf.fill([ids.nrows(), 1], self._mask_id)
            return parts.with_values(tf.concat([ids, masks], axis=1)).merge_dims(1, 2)[:, :-1]

    def with_offsets(self, texts: tf.Tensor) -> GraphTokens:
        """Tokens and offsets of `texts` string [B]; equal to `SentencePieceTokenizer.encode_with_offsets`."""
        with tf.device("CPU:0"):
            decoded, at_byte = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="ignore")
            ids, *places = self._op.tokenize_with_offsets(_valid(texts))
            # First bytes of all characters, and of all texts, in what was tokenized.
            bytes_before = tf.concat([[0], tf.cumsum(utf8_length(decoded.values))], axis=0)
            first = tf.gather(decoded.row_starts(), ids.value_rowids())
            first_byte = tf.gather(bytes_before, first)
            starts, ends = (
                tf.searchsorted(bytes_before, place.values + first_byte, out_type=tf.int64) for place in places
            )
            used = tf.concat([tf.where(~is_space(decoded.values))[:, 0], [tf.size(decoded.values, tf.int64)]], 0)
            starts = tf.minimum(tf.gather(used, tf.searchsorted(used, starts)), ends)
            # A space before a character that is a piece of its own is a token without characters.
            byte_starts, last = tf.gather(tf.concat([at_byte.values, [0]], axis=0), starts), tf.maximum(ends - 1, 0)
            byte_ends = tf.gather(at_byte.values, last) + utf8_length(tf.gather(decoded.values, last))
            byte_ends = tf.where(starts < ends, byte_ends, byte_starts)
            return GraphTokens(ids, starts - first, ends - first, byte_starts, byte_ends)

    def encode_words(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Token ids int32 [W, (tokens)] of words, code points int32 [W, (code points)]."""
        with tf.device("CPU:0"):
            return self._op.tokenize(tf.strings.unicode_encode(words, "UTF-8"))


def _valid(texts: tf.Tensor) -> tf.Tensor:
    """Texts without bytes that are not UTF-8; `unicode_encode` would also replace noncharacters."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="ignore")
