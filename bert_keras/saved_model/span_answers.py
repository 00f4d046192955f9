"""Answers to questions and contexts: `span_features` and `span_answers` as a TensorFlow graph, for the SavedModel.

Its ops are TensorFlow's own and those of the graph tokenizers. Legend: B rows, N windows of all rows, S windows of a
slice, T tokens of the longest window, P tokens of all contexts, k best starts and ends.
"""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_keras.saved_model.text_inputs import graph_tokenizer_of, text_specs
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.features import room_for_context, special_tokens
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer
from bert_keras.tokenizers.wordpiece_graph import GraphTokens

# Windows per call of the model; bounds the memory for a long context.
SLICE_WINDOWS = 16


class _Windows(NamedTuple):
    """Like `bert_keras.tasks.span.features.SpanWindows`, with the places of the texts; int64 [N] each."""

    row: tf.Tensor
    number: tf.Tensor  # number of the window in the row
    count: tf.Tensor  # number of windows of the row
    tokens: tf.Tensor  # number of tokens of the row's context
    room: tf.Tensor  # number of context tokens that fit in a window of the row
    step: tf.Tensor  # tokens between the starts of two windows of the row
    context: tf.Tensor  # first token of the row's context among all contexts
    question: tf.Tensor  # first token of the row's question among all questions
    question_length: tf.Tensor  # number of question tokens used
    offset: tf.Tensor  # position of the first context token in the window

    @property
    def first(self) -> tf.Tensor:
        return self.number * self.step

    @property
    def length(self) -> tf.Tensor:
        return tf.minimum(self.room, self.tokens - self.first)


class SpanAnswers(tf.Module):
    """A model's answers to questions: a callable on (question string[B], context string[B]), UTF-8.

    Equal to `span_answers` on the windows of `span_features`, after removal of bytes that are not UTF-8. Returns a dict
    of tensors [B]:

        answer string                   the characters of the context; "" for no answer
        score float32                   sum of the start and end logits of the best answer other than ""; 0 if none
        null_score_difference float32   the score of no answer minus `score`
        start, end int64                characters of the answer in the decoded context, end exclusive; -1 for no answer

    `model`: a float32 `BertForSpanExtraction`. `settings`: settings of windows and answers. InputError if there is no
    room for a context.
    """

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, settings: TaskSettings, task: Task):
        super().__init__()
        room_for_context(settings, tokenizer)
        # Track the variables, not the model: Keras would trace a tracked model for another default signature.
        self.variables_used = [weight.value for weight in model.weights]
        self._model = lambda: model
        self._tokenizer, self._settings, self._task = tokenizer, settings, task
        self._tokenize = graph_tokenizer_of(tokenizer)

    @tf.function(input_signature=text_specs("question", "context"), autograph=False)
    def __call__(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.debugging.assert_equal(tf.size(question), tf.size(context), "as many contexts are needed as questions")
        questions, contexts = self._tokenize(question), self._tokenize.with_offsets(context)
        with tf.device("CPU:0"):
            windows = _cut(questions, contexts.ids, self._settings, special_tokens(self._tokenizer))
            # One more element, so that look-ups work even if all are empty.
            question_ids, context_ids = (
                tf.concat([ids, [self._tokenizer.pad_id]], axis=0) for ids in (questions.values, contexts.ids.values)
            )
        count = tf.size(windows.row, tf.int32)

        def read_slice(begin, arrays):
            part = _Windows(*(values[begin : begin + SLICE_WINDOWS] for values in windows))
            inputs = self._inputs(part, question_ids, context_ids)
            outputs = self._model()(inputs, training=False)
            best = self._best_of_windows(part, inputs["input_mask"], outputs)
            place = begin // SLICE_WINDOWS
            return begin + SLICE_WINDOWS, tuple(a.write(place, b) for a, b in zip(arrays, best, strict=True))

        slices = (count + SLICE_WINDOWS - 1) // SLICE_WINDOWS
        arrays = tuple(
            tf.TensorArray(dtype, slices, infer_shape=False, element_shape=[None])
            for dtype in (tf.float64, tf.float64, tf.int64, tf.int64)
        )
        # parallel_iterations=1: one slice after the other, to bound memory.
        _, written = tf.while_loop(
            lambda begin, _: begin < count, read_slice, (tf.constant(0), arrays), parallel_iterations=1
        )
        with tf.device("CPU:0"):
            best_of_windows = [array.concat() for array in written]
            return self._best_of_rows(windows.row, best_of_windows, context, contexts)

    def _inputs(self, windows: _Windows, question_ids: tf.Tensor, context_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """[CLS] question [SEP] window [SEP], padded to the longest, int32 [S, T]; for RoBERTa as `span_features`."""
        offset, end = windows.offset[:, None], (windows.offset + windows.length)[:, None]
        question_end = offset - self._tokenizer.pair_separators
        at = tf.range(tf.reduce_max(end) + 1)
        question = tf.where((at > 0) & (at < question_end), windows.question[:, None] + at - 1, 0)
        in_context = (at >= offset) & (at < end)
        token = tf.where(in_context, (windows.context + windows.first)[:, None] + at - offset, 0)
        ids = tf.where(in_context, tf.gather(context_ids, token), tf.gather(question_ids, question))
        ids = tf.where(at == 0, self._tokenizer.cls_id, ids)
        ids = tf.where(((at >= question_end) & (at < offset)) | (at == end), self._tokenizer.sep_id, ids)
        return {
            "input_ids": tf.where(at > end, self._tokenizer.pad_id, ids),
            "input_mask": tf.cast(at <= end, tf.int32),
            "segment_ids": tf.cast((at >= offset) & (at <= end) & self._tokenizer.has_segments, tf.int32),
        }

    def _best_of_windows(self, windows: _Windows, input_mask: tf.Tensor, outputs) -> tuple[tf.Tensor, ...]:
        """(null score, best score, its first and last token among P) of each window, [S]; score -inf if it has none."""
        is_input = input_mask > 0
        starts, ends = (
            tf.where(is_input, tf.cast(outputs[name], tf.float64), -np.inf) for name in ("start_logits", "end_logits")
        )
        k = tf.minimum(self._settings.n_best_size, tf.shape(is_input)[1])
        inside = tf.range(tf.shape(is_input, tf.int64)[1]) - windows.offset[:, None]
        in_document = (inside >= 0) & (inside < windows.length[:, None])
        start_scores, start = tf.math.top_k(starts, k)
        end_scores, end = tf.math.top_k(ends, k)
        start_allowed = tf.gather(in_document & _is_max_context(inside, windows, self._settings), start, batch_dims=1)
        end_allowed = tf.gather(in_document, end, batch_dims=1)
        longer_by = end[:, None, :] - start[:, :, None]  # [S, k, k]
        allowed = start_allowed[:, :, None] & end_allowed[:, None, :]
        allowed &= (longer_by >= 0) & (longer_by < self._settings.max_answer_length)
        scores = tf.where(allowed, start_scores[:, :, None] + end_scores[:, None, :], -np.inf)
        scores = tf.reshape(scores, [tf.shape(scores)[0], k * k])
        best = tf.argmax(scores, axis=1, output_type=tf.int32)  # the first of equal ones
        tokens = (windows.context + windows.first - windows.offset)[:, None]
        return (
            starts[:, 0] + ends[:, 0],
            tf.gather(scores, best, batch_dims=1),
            tf.gather(tokens + tf.cast(start, tf.int64), best // k, batch_dims=1),
            tf.gather(tokens + tf.cast(end, tf.int64), best % k, batch_dims=1),
        )

    def _best_of_rows(
        self, row: tf.Tensor, best_of_windows: list[tf.Tensor], context: tf.Tensor, contexts: GraphTokens
    ) -> dict[str, tf.Tensor]:
        """The answers, from `_best_of_windows` of all windows [N]; every row has a window."""
        nulls, scores, firsts, lasts = best_of_windows
        null, score = tf.math.segment_min(nulls, row), tf.math.segment_max(scores, row)
        has_span = score > -np.inf
        # The first window of the best score.
        at = tf.where(scores == tf.gather(score, row), tf.range(tf.size(row, tf.int64)), tf.size(row, tf.int64))
        window = tf.math.segment_min(at, row)
        score = tf.where(has_span, score, 0.0)
        answered = has_span
        if self._task.unanswerable:
            answered &= null - score <= self._settings.null_score_diff_threshold

        def at_token(values, tokens):
            # Without an answer, and maybe without any token, look up the -1.
            tokens = tf.where(answered, tf.gather(tokens, window), tf.size(values, tf.int64))
            return tf.gather(tf.concat([values, [-1]], axis=0), tokens)

        begin, size = at_token(contexts.byte_starts, firsts), at_token(contexts.byte_ends, lasts)
        begin, size = tf.where(answered, begin, 0), tf.where(answered, size - begin, 0)
        return {
            "answer": tf.strings.substr(context, begin, size),
            "score": tf.cast(score, tf.float32),
            "null_score_difference": tf.cast(null - score, tf.float32),
            "start": at_token(contexts.starts, firsts),
            "end": at_token(contexts.ends, lasts),
        }


def _cut(questions: tf.RaggedTensor, contexts: tf.RaggedTensor, settings: TaskSettings, special: int) -> _Windows:
    """The places of the windows of all rows. A context without tokens has one window."""
    question_length = tf.minimum(questions.row_lengths(), settings.max_query_length)
    tokens = contexts.row_lengths()
    room = settings.max_seq_length - special - question_length
    step = tf.minimum(room, settings.doc_stride)
    count = 1 + tf.maximum(-((room - tokens) // step), 0)
    row = tf.repeat(tf.range(tf.size(count, tf.int64)), count)
    number = tf.range(tf.size(row, tf.int64)) - tf.gather(tf.cumsum(count, exclusive=True), row)
    offset = question_length + special - 1
    by_row = (count, tokens, room, step, contexts.row_starts(), questions.row_starts(), question_length, offset)
    return _Windows(row, number, *(tf.gather(values, row) for values in by_row))


def _is_max_context(inside: tf.Tensor, windows: _Windows, settings: TaskSettings) -> tf.Tensor:
    """`SpanWindows.is_max_context` for the window's tokens `inside` int64 [S, T]; bool [S, T].

    The result is arbitrary for positions outside the window.
    """
    # Number of windows before and after that may share a token, [2 * reach].
    reach = -(-(settings.max_seq_length - 3) // settings.doc_stride) - 1
    distance = tf.constant([d for d in range(-reach, reach + 1) if d], tf.int64)
    number = windows.number[:, None] + distance  # [S, 2 * reach]
    step = windows.step[:, None]
    size = tf.minimum(windows.room[:, None], windows.tokens[:, None] - number * step)[:, None, :]
    there = inside[:, :, None] - (distance * step)[:, None, :]  # [S, T, 2 * reach]
    exists = ((number >= 0) & (number < windows.count[:, None]))[:, None, :]
    score = _context_score(inside, windows.length[:, None])[:, :, None]
    other = _context_score(there, size)
    better = (other > score) | ((other == score) & (distance < 0))
    return ~tf.reduce_any(exists & (there >= 0) & (there < size) & better, axis=2)


def _context_score(inside: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.minimum(inside, size - 1 - inside), tf.float64) + 0.01 * tf.cast(size, tf.float64)
