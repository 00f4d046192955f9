"""Questions and contexts in, answers out: `span_features` and `span_answers` as a TensorFlow graph, for the SavedModel.

Its ops are TensorFlow's own and those of `graph_tokenizer`. Legend: B rows, N windows of them all, S windows of a
slice, T their longest, P pieces of all contexts, k best starts and ends.
"""

from __future__ import annotations

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_keras.graph_tokenizer import GraphPieces
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span_features import room_for_context, special_tokens
from bert_keras.tasks.table import Task
from bert_keras.text_inputs import graph_tokenizer_of
from bert_keras.tokenization import Tokenizer

# Windows that the model reads at a time: what bounds the memory that a long context takes.
SLICE_WINDOWS = 16


class _Windows(NamedTuple):
    """As `span_features.SpanWindows`, int64 [N] each, and where the window's texts are.

    Attributes:
        row: the row.
        number: of the window in it.
        count: windows of the row.
        pieces: of the row's context.
        room: pieces of a context that fit a window of the row.
        step: pieces between windows of the row.
        context: where the pieces of the row's context begin.
        question: where those of its question begin.
        question_length: how many of them are used.
        offset: the position of the first piece of the context in the window.
    """

    row: tf.Tensor
    number: tf.Tensor
    count: tf.Tensor
    pieces: tf.Tensor
    room: tf.Tensor
    step: tf.Tensor
    context: tf.Tensor
    question: tf.Tensor
    question_length: tf.Tensor
    offset: tf.Tensor

    @property
    def first(self) -> tf.Tensor:
        return self.number * self.step

    @property
    def length(self) -> tf.Tensor:
        return tf.minimum(self.room, self.pieces - self.first)


class SpanAnswers(tf.Module):
    """The answers of a model to questions, call it with (question string[B], context string[B]), UTF-8.

    Equal to `span_answers` of the windows of `span_features`, for the texts without bytes that are not UTF-8. Returns a
    dict of tensors [B]:

        answer string                   as it stands in the context; "" for no answer
        score float32                   sum of the start and end logits of the best answer that is not ""; 0 if none
        null_score_difference float32   how much the score of no answer is above that
        start, end int64                characters of the answer in the decoded context, end exclusive; -1 for no answer

    Args:
        model: a float32 `BertForSpanExtraction`.
        tokenizer: its vocabulary.
        settings: how windows are cut and answers read off. InputError if there is no room for a context.
        task: whether there may be no answer.
    """

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, settings: TaskSettings, task: Task):
        super().__init__()
        room_for_context(settings, tokenizer)
        # Its variables and not the model: Keras would trace a tracked model for a default signature of its own.
        self.variables_used = [weight.value for weight in model.weights]
        self._model = lambda: model
        self._tokenizer, self._settings, self._task = tokenizer, settings, task
        self._pieces = graph_tokenizer_of(tokenizer)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name=name) for name in ("question", "context")])
    def __call__(self, question: tf.Tensor, context: tf.Tensor) -> dict[str, tf.Tensor]:
        tf.debugging.assert_equal(tf.size(question), tf.size(context), "as many contexts are needed as questions")
        questions, contexts = self._pieces(question), self._pieces.with_offsets(context)
        with tf.device("CPU:0"):
            windows = _cut(questions, contexts.ids, self._settings, special_tokens(self._tokenizer))
            # One more, so that there is something to look up where all are empty.
            question_ids, context_ids = (
                tf.concat([ids, [self._tokenizer.pad_id]], axis=0) for ids in (questions.values, contexts.ids.values)
            )
        count = tf.size(windows.row, tf.int32)

        def read_slice(begin, found):
            part = _Windows(*(values[begin : begin + SLICE_WINDOWS] for values in windows))
            inputs = self._inputs(part, question_ids, context_ids)
            outputs = self._model()(inputs, training=False)
            best = self._best_of_windows(part, inputs["input_mask"], outputs)
            place = begin // SLICE_WINDOWS
            return begin + SLICE_WINDOWS, tuple(a.write(place, b) for a, b in zip(found, best, strict=True))

        slices = (count + SLICE_WINDOWS - 1) // SLICE_WINDOWS
        arrays = tuple(
            tf.TensorArray(dtype, slices, infer_shape=False, element_shape=[None])
            for dtype in (tf.float64, tf.float64, tf.int64, tf.int64)
        )
        # One slice after the other.
        _, found = tf.while_loop(
            lambda begin, _: begin < count, read_slice, (tf.constant(0), arrays), parallel_iterations=1
        )
        with tf.device("CPU:0"):
            of_windows = [array.concat() for array in found]
            return self._best_of_rows(windows.row, of_windows, context, contexts)

    def _inputs(self, windows: _Windows, question_ids: tf.Tensor, context_ids: tf.Tensor) -> dict[str, tf.Tensor]:
        """[CLS] question [SEP] window [SEP], padded to the longest, int32 [S, T]; of RoBERTa as `span_features`."""
        offset, end = windows.offset[:, None], (windows.offset + windows.length)[:, None]
        question_end = offset - self._tokenizer.pair_separators
        at = tf.range(tf.reduce_max(end) + 1)
        question = tf.where((at > 0) & (at < question_end), windows.question[:, None] + at - 1, 0)
        in_context = (at >= offset) & (at < end)
        piece = tf.where(in_context, (windows.context + windows.first)[:, None] + at - offset, 0)
        ids = tf.where(in_context, tf.gather(context_ids, piece), tf.gather(question_ids, question))
        ids = tf.where(at == 0, self._tokenizer.cls_id, ids)
        ids = tf.where(((at >= question_end) & (at < offset)) | (at == end), self._tokenizer.sep_id, ids)
        return {
            "input_ids": tf.where(at > end, self._tokenizer.pad_id, ids),
            "input_mask": tf.cast(at <= end, tf.int32),
            "segment_ids": tf.cast((at >= offset) & (at <= end) & self._tokenizer.has_segments, tf.int32),
        }

    def _best_of_windows(self, windows: _Windows, input_mask: tf.Tensor, outputs) -> tuple[tf.Tensor, ...]:
        """(null score, best score, and its first and last piece of all P) of each window, [S]; -inf if it has none."""
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
        best = tf.argmax(scores, axis=1, output_type=tf.int32)  # of equal ones the first
        pieces = (windows.context + windows.first - windows.offset)[:, None]
        return (
            starts[:, 0] + ends[:, 0],
            tf.gather(scores, best, batch_dims=1),
            tf.gather(pieces + tf.cast(start, tf.int64), best // k, batch_dims=1),
            tf.gather(pieces + tf.cast(end, tf.int64), best % k, batch_dims=1),
        )

    def _best_of_rows(
        self, row: tf.Tensor, of_windows: list[tf.Tensor], context: tf.Tensor, contexts: GraphPieces
    ) -> dict[str, tf.Tensor]:
        """The answers, from what `_best_of_windows` found for each window [N]; every row has a window."""
        nulls, scores, firsts, lasts = of_windows
        null, score = tf.math.segment_min(nulls, row), tf.math.segment_max(scores, row)
        found = score > -np.inf
        # The first window of the best score.
        at = tf.where(scores == tf.gather(score, row), tf.range(tf.size(row, tf.int64)), tf.size(row, tf.int64))
        window = tf.math.segment_min(at, row)
        score = tf.where(found, score, 0.0)
        answered = found
        if self._task.unanswerable:
            answered &= null - score <= self._settings.null_score_diff_threshold

        def at_piece(values, pieces):
            # Something to look up where there is no answer, and maybe no piece.
            pieces = tf.where(answered, tf.gather(pieces, window), tf.size(values, tf.int64))
            return tf.gather(tf.concat([values, [-1]], axis=0), pieces)

        begin, size = at_piece(contexts.byte_starts, firsts), at_piece(contexts.byte_ends, lasts)
        begin, size = tf.where(answered, begin, 0), tf.where(answered, size - begin, 0)
        return {
            "answer": tf.strings.substr(context, begin, size),
            "score": tf.cast(score, tf.float32),
            "null_score_difference": tf.cast(null - score, tf.float32),
            "start": at_piece(contexts.starts, firsts),
            "end": at_piece(contexts.ends, lasts),
        }


def _cut(questions: tf.RaggedTensor, contexts: tf.RaggedTensor, settings: TaskSettings, special: int) -> _Windows:
    """Where the windows of all rows are. A context without pieces has one window without any."""
    question_length = tf.minimum(questions.row_lengths(), settings.max_query_length)
    pieces = contexts.row_lengths()
    room = settings.max_seq_length - special - question_length
    step = tf.minimum(room, settings.doc_stride)
    count = 1 + tf.maximum(-((room - pieces) // step), 0)
    row = tf.repeat(tf.range(tf.size(count, tf.int64)), count)
    number = tf.range(tf.size(row, tf.int64)) - tf.gather(tf.cumsum(count, exclusive=True), row)
    offset = question_length + special - 1
    of_rows = (count, pieces, room, step, contexts.row_starts(), questions.row_starts(), question_length, offset)
    return _Windows(row, number, *(tf.gather(values, row) for values in of_rows))


def _is_max_context(inside: tf.Tensor, windows: _Windows, settings: TaskSettings) -> tf.Tensor:
    """`SpanWindows.is_max_context` for positions that are piece `inside` int64 [S, T] of the window; bool [S, T].

    Pieces outside of a window may come out either way.
    """
    # As many windows before and after as may share a piece, [2 * reach].
    reach = -(-(settings.max_seq_length - 3) // settings.doc_stride) - 1
    distance = tf.constant([d for d in range(-reach, reach + 1) if d], tf.int64)
    number = windows.number[:, None] + distance  # [S, 2 * reach]
    step = windows.step[:, None]
    size = tf.minimum(windows.room[:, None], windows.pieces[:, None] - number * step)[:, None, :]
    there = inside[:, :, None] - (distance * step)[:, None, :]  # [S, T, 2 * reach]
    exists = ((number >= 0) & (number < windows.count[:, None]))[:, None, :]
    score = _context_score(inside, windows.length[:, None])[:, :, None]
    other = _context_score(there, size)
    better = (other > score) | ((other == score) & (distance < 0))
    return ~tf.reduce_any(exists & (there >= 0) & (there < size) & better, axis=2)


def _context_score(inside: tf.Tensor, size: tf.Tensor) -> tf.Tensor:
    return tf.cast(tf.minimum(inside, size - 1 - inside), tf.float64) + 0.01 * tf.cast(size, tf.float64)
