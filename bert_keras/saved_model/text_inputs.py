"""A model's inputs from raw text in a TensorFlow graph, shared by all exported models.

Shapes: B texts, T' tokens of the longest sequence of the batch (at most T), H hidden.
"""

import copy
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from bert_keras.models import task_models
from bert_keras.saved_model.saved_model_files import traced
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tasks.sequences import head_room, truncate_pair
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer
from bert_keras.tokenizers.byte_bpe_graph import GraphByteBpe
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer
from bert_keras.tokenizers.sentencepiece_graph import GraphSentencePiece
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.tokenizers.wordpiece_graph import GraphTokenizer

# The packed inputs of B texts -> `sequence_output` [B, T', H], `pooled_output` [B, H].
Backbone = Callable[[dict[str, tf.Tensor]], dict[str, tf.Tensor]]


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
        tokenized = traced(self.tokenize, text_specs("texts"))  # one function for all signatures
        self._tokenized = lambda texts: tokenized(texts)

    def __call__(self, text: tf.Tensor, text_pair: tf.Tensor | None = None) -> dict[str, tf.Tensor]:
        """The inputs of texts or pairs string [B], int32 [B, T']."""
        return self.pack(self._tokenized(text), None if text_pair is None else self._tokenized(text_pair))

    def pack(self, first: tf.RaggedTensor, second: tf.RaggedTensor | None = None) -> dict[str, tf.Tensor]:
        """[CLS] first [SEP] (second [SEP]), truncated to T, padded to the longest: the model's inputs, int32 [B, T'].

        Equal to `bert_keras.tasks.sequences`, for RoBERTa's format too.
        """
        room, between = self._max_seq_length - 2, self._tokenizer.pair_separators
        lengths = first.row_lengths()[:, None]
        head, cut = room, tf.maximum(lengths - room, 0)
        if second is None:
            head, kept = head_room(room, self._truncation), lengths - cut
            end = kept + 1  # the last [SEP]
            begin = end + 1  # of the second text
        else:
            # Else a single text would be paired with each of the others.
            tf.debugging.assert_equal(first.nrows(), second.nrows(), "as many second texts are needed as texts")
            kept, kept_b = truncate_pair(lengths, second.row_lengths()[:, None], room - between)
            begin = kept + 1 + between
            end = begin + kept_b
        # At least one position, which the pooler needs even without rows.
        at = tf.range(tf.maximum(tf.reduce_max(end) + 1, 1))
        # Dense rows: TensorFlow joins ragged ones by ten times as many operations, which every signature would load.
        ids = tf.where(at <= end, self._tokenizer.sep_id, self._tokenizer.pad_id)
        ids = _put(ids, (at > 0) & (at <= kept), first, tf.where(at <= head, at - 1, at - 1 + cut))
        if second is not None:
            ids = _put(ids, (at >= begin) & (at < end), second, at - begin)
        return {
            "input_ids": tf.where(at == 0, self._tokenizer.cls_id, ids),
            "input_mask": tf.cast(at <= end, tf.int32),
            "segment_ids": tf.cast((at >= begin) & (at <= end) & self._tokenizer.has_segments, tf.int32),
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


def shared_backbone(backbone: keras.Model) -> Backbone:
    """A backbone as one function, which the signatures that call it share in the SavedModel."""
    spec = dict.fromkeys(("input_ids", "input_mask", "segment_ids"), tf.TensorSpec([None, None], tf.int32))

    def outputs(packed):
        found = backbone(packed, training=False)
        return {name: found[name] for name in ("sequence_output", "pooled_output") if name in found}

    function = traced(outputs, [spec])
    return lambda packed: function(packed)


def encode(
    backbone: Backbone, inputs: TextInputs, pooled: bool, text: tf.Tensor, text_pair: tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """The signatures `encode` and `encode_pair`: encoder outputs of texts or pairs string [B].

    Returns: `pooled_output` [B, H] if `pooled`, `sequence_output` [B, T', H], `tokens` [B, T'], "[PAD]" for padding.
    """
    packed = inputs(text, text_pair)
    outputs = backbone(packed)
    return {
        **({"pooled_output": tf.cast(outputs["pooled_output"], tf.float32)} if pooled else {}),
        "sequence_output": tf.cast(outputs["sequence_output"], tf.float32),
        "tokens": inputs.tokens(packed["input_ids"]),
    }


def embed(backbone: Backbone, inputs: TextInputs, settings: EmbeddingSettings, text: tf.Tensor) -> dict[str, tf.Tensor]:
    """The signature `embed`: one vector for each text string [B] (Reimers and Gurevych 2019, section 3).

    Returns: `embedding` float [B, H], and `num_tokens` int32 [B], the tokens that were read.
    """
    packed = inputs.limited(settings.max_seq_length)(text)
    states = tf.cast(backbone(packed)["sequence_output"], tf.float32)
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


def _put(ids: tf.Tensor, places: tf.Tensor, texts: tf.RaggedTensor, tokens: tf.Tensor) -> tf.Tensor:
    """`ids` [B, T'], but at `places` bool [B, T'] the tokens of `texts` [B, (tokens)] with the numbers `tokens`."""
    # One more element, so that look-ups work even if all texts are empty.
    values = tf.concat([texts.values, [0]], axis=0)
    return tf.where(places, tf.gather(values, tf.where(places, texts.row_starts()[:, None] + tokens, 0)), ids)
