"""A model's inputs from raw text in a TensorFlow graph, shared by all exported models.

Shapes: B texts, T' tokens of the longest sequence of the batch (at most T), H hidden.
"""

import copy
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from bert_keras.models import task_models
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tasks.sequences import head_room, truncate_pair
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenizers.byte_bpe_graph import GraphByteBpe
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.sentencepiece_graph import GraphSentencePiece
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.tokenizers.wordpiece_graph import GraphTokenizer


def graph_tokenizer_of(tokenizer: Tokenizer) -> GraphTokenizer | GraphByteBpe | GraphSentencePiece:
    """The graph version of a tokenizer."""
    if isinstance(tokenizer, ByteBpeTokenizer):
        return GraphByteBpe(tokenizer)
    if isinstance(tokenizer, SentencePieceTokenizer):
        return GraphSentencePiece(tokenizer)
    assert isinstance(tokenizer, BertTokenizer)
    return _graph_of(tokenizer)


def mask_tokenizer_of(
    tokenizer: Tokenizer, graph: GraphTokenizer | GraphByteBpe | GraphSentencePiece
) -> Callable[[tf.Tensor], Any]:
    """The graph version of a tokenizer for texts with masks, each one token; of `graph` the tables are used again."""
    if not isinstance(graph, GraphTokenizer):
        return graph.with_masks
    assert isinstance(tokenizer, BertTokenizer)
    # The original's tokenizer splits "[MASK]".
    return _graph_of(tokenizer, preserve=tokenizer.format.mask)


def _graph_of(tokenizer: BertTokenizer, **fields: Any) -> GraphTokenizer:
    rules = tokenizer.normalization.fields
    return GraphTokenizer(tokenizer.vocabulary, unknown=tokenizer.format.unk, **rules, **fields)


class TextInputs(tf.Module):
    """Texts to the backbone's inputs, with the tokenizer in the graph.

    `max_seq_length`: T; longer sequences are truncated. `truncation`: the tokens kept of single texts
    (`bert_keras.tasks.sequences`); pairs lose the end of the longer text.
    """

    def __init__(self, tokenizer: Tokenizer, max_seq_length: int, truncation: str):
        super().__init__()
        self._tokenizer, self._max_seq_length, self._truncation = tokenizer, max_seq_length, truncation
        self.tokenize = graph_tokenizer_of(tokenizer)

    def __call__(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """The inputs of texts or pairs string [B], int32 [B, T']."""
        return self.pack(self.tokenize(text), None if text_pair is None else self.tokenize(text_pair))

    def pack(self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None) -> dict[str, tf.Tensor]:
        """[CLS] first [SEP] (second [SEP]), truncated to T, padded to the longest: the model's inputs, int32 [B, T'].

        Equal to `bert_keras.tasks.sequences`, for RoBERTa's format too.
        """
        rows = first.nrows(out_type=tf.int32)
        cls_id = tf.fill([rows, 1], self._tokenizer.cls_id)
        sep_id = tf.fill([rows, 1], self._tokenizer.sep_id)
        between = [sep_id] * self._tokenizer.pair_separators
        if second is None:
            segments = [[cls_id, tf.ragged.boolean_mask(first, self.places(first) > 0), sep_id]]
        else:
            length_a, length_b = (tf.cast(texts.row_lengths(), tf.int32) for texts in (first, second))
            kept_a, kept_b = truncate_pair(length_a, length_b, self._max_seq_length - 2 - len(between))
            segments = [[cls_id, _keep_first(first, kept_a), *between], [_keep_first(second, kept_b), sep_id]]
        ragged = [tf.concat(parts, axis=1) for parts in segments]
        ids = tf.concat(ragged, axis=1)
        number_of = tf.ones_like if self._tokenizer.has_segments else tf.zeros_like
        segment_ids = tf.concat([number_of(part) * index for index, part in enumerate(ragged)], axis=1)
        # At least one position, which the pooler needs even without rows.
        shape = tf.stack([-1, tf.maximum(1, tf.cast(ids.bounding_shape(axis=1), tf.int32))])
        return {
            "input_ids": ids.to_tensor(self._tokenizer.pad_id, shape=shape),
            "input_mask": tf.ones_like(ids).to_tensor(0, shape=shape),
            "segment_ids": segment_ids.to_tensor(0, shape=shape),
        }

    def places(self, ids: tf.RaggedTensor) -> tf.RaggedTensor:
        """The position in the model's inputs of each token of single texts, [B, (tokens)], int64; 0 if truncated."""
        room = self._max_seq_length - 2
        head, row = head_room(room, self._truncation), ids.value_rowids()
        cut = tf.gather(tf.maximum(ids.row_lengths() - room, 0), row)
        position = tf.range(tf.size(ids.flat_values, tf.int64)) - tf.gather(ids.row_starts(), row)
        place = tf.where(position < head, position, position - cut) + 1
        return ids.with_flat_values(tf.where((position < head) | (position >= head + cut), place, 0))

    def limited(self, max_seq_length: int) -> "TextInputs":
        """The same with sequences of at most `max_seq_length` tokens; 0 changes nothing."""
        limited = copy.copy(self)  # with the same tables
        limited._max_seq_length = min(self._max_seq_length, max_seq_length or self._max_seq_length)
        return limited

    def tokens(self, ids: tf.Tensor) -> tf.Tensor:
        """Tokens of `ids`, string, same shape."""
        return tf.gather(tf.constant(self._tokenizer.vocabulary), ids)

    def token_texts(self, ids: tf.Tensor) -> tf.Tensor:
        """Texts of the tokens of `ids`, string, same shape."""
        return tf.gather(tf.constant(self._tokenizer.token_texts), ids)


def encode(
    backbone, inputs: TextInputs, pooled: bool, text: tf.Tensor, text_pair: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """The signatures `encode` and `encode_pair`: encoder outputs of texts or pairs string [B].

    Returns: `pooled_output` [B, H] if `pooled`, `sequence_output` [B, T', H], `tokens` [B, T'], "[PAD]" for padding.
    """
    packed = inputs(text, text_pair)
    outputs = backbone(packed, training=False)
    return {
        **({"pooled_output": tf.cast(outputs["pooled_output"], tf.float32)} if pooled else {}),
        "sequence_output": tf.cast(outputs["sequence_output"], tf.float32),
        "tokens": inputs.tokens(packed["input_ids"]),
    }


def embed(backbone, inputs: TextInputs, settings: EmbeddingSettings, text: tf.Tensor) -> dict[str, tf.Tensor]:
    """The signature `embed`: one vector for each text string [B] (Reimers and Gurevych 2019, section 3).

    Returns: `embedding` float [B, H], and `num_tokens` int32 [B], the tokens that were read.
    """
    packed = inputs.limited(settings.max_seq_length)(text)
    states = tf.cast(backbone(packed, training=False)["sequence_output"], tf.float32)
    mask = tf.cast(packed["input_mask"], tf.float32)
    vectors = task_models.pooled(states, mask, settings.pooling)
    if settings.normalize:
        vectors = tf.math.l2_normalize(vectors, axis=1)
    return {"embedding": vectors, "num_tokens": tf.reduce_sum(packed["input_mask"], axis=1)}


def text_specs(*names: str) -> list[tf.TensorSpec]:
    """Specs of a signature's string [B] arguments."""
    return [tf.TensorSpec([None], tf.string, name=name) for name in names]


def refuse(bad: tf.Tensor, message: str) -> tf.Operation:
    """Fail with `message`, formatted with the first row where `bad` bool [B] is true."""
    first = tf.reduce_min(tf.where(bad))  # works without rows, unlike tf.argmax
    return tf.debugging.Assert(tf.logical_not(tf.reduce_any(bad)), [tf.strings.format(message, first)])


def _keep_first(ragged: tf.RaggedTensor, lengths: tf.Tensor) -> tf.RaggedTensor:
    """The first `lengths[i]` values of row i."""
    starts = ragged.row_starts()
    position = tf.range(tf.size(ragged.flat_values, tf.int64)) - tf.gather(starts, ragged.value_rowids())
    kept = position < tf.gather(tf.cast(lengths, tf.int64), ragged.value_rowids())
    return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(ragged.flat_values, kept), lengths)
