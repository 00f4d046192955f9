"""Windows of questions and contexts, as in google-research/bert's run_squad.py (`convert_examples_to_features`).

"Who wrote it?" and the context "My dog wrote it, in May ." with T = 13 and a doc_stride of 3, the answer "in May":

    window 0   [CLS] who wrote it ? [SEP] my dog wrote it , in [SEP]      start 0, end 0: without the whole answer
    window 1   [CLS] who wrote it ? [SEP] it , in may . [SEP] [PAD]       start 8, end 9

For RoBERTa two </s> separate question and context, and the answer's tokens are those that contain its characters.
Shapes: R rows, N windows, T tokens, P tokens of a row's context.
"""

import dataclasses
import re
from collections.abc import Sequence

import numpy as np

from bert_keras.errors import InputError
from bert_keras.notices import notify
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import each_place
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tokenizers.protocol import EncodedTexts, Tokenizer

# White space at which run_squad.py splits a context; the tokenizer's set is larger.
SPACES = " \t\r\n\u202f"
# Windows made at a time: the index arrays are larger than the result.
_BLOCK = 4096


@dataclasses.dataclass(frozen=True, eq=False)
class SpanWindows:
    """The map from positions in windows to characters of contexts; arrays are int64 [N] but for `context_of`, [R]."""

    context: EncodedTexts  # tokens of the contexts with their offsets
    context_of: np.ndarray  # the text of `context` for each row; equal contexts are tokenized once
    row: np.ndarray  # the row of each window; ascending
    number: np.ndarray  # number of the window in its row, from 0
    first: np.ndarray  # first context token of the window
    length: np.ndarray  # number of context tokens in the window
    offset: np.ndarray  # position of the first context token
    step: np.ndarray  # tokens between the starts of two windows of the row
    not_recovered: tuple[str, ...] = ()  # ids of rows whose answer is not at its answer_start: of weight 0 in training

    def in_document(self, length: int) -> np.ndarray:
        """bool [N, T] for T = `length`: the position holds a context token."""
        positions = np.arange(length) - self.offset[:, None]
        return (positions >= 0) & (positions < self.length[:, None])

    def is_max_context(self, length: int) -> np.ndarray:
        """bool [N, T]: no other window of the row has more context around the token, and no earlier one as much.

        The context is the minimum of the numbers of tokens before and after, plus a hundredth of the window's length.
        False for positions without a context token.
        """
        blocks = [slice(start, start + _BLOCK) for start in range(0, len(self.row), _BLOCK)]
        # Number of windows before and after that may share a token.
        reach = int(np.max(-(-self.length // self.step), initial=1)) - 1
        parts = [self._is_max_context(block, length, reach) for block in blocks]
        return np.concatenate([np.zeros((0, length), bool), *parts])

    def _is_max_context(self, block: slice, length: int, reach: int) -> np.ndarray:
        inside = np.arange(length) - self.offset[block, None]  # [block, T], index of the token in the window
        sizes, step = self.length[block, None], self.step[block, None]
        score = _context_score(inside, sizes)
        result = (inside >= 0) & (inside < sizes)
        index = np.arange(len(self.row))[block]
        for distance in (d for d in range(-reach, reach + 1) if d):
            other = np.clip(index + distance, 0, len(self.row) - 1)
            same_row = ((self.row[other] == self.row[index]) & (other == index + distance))[:, None]
            there, size = inside - distance * step, self.length[other, None]
            other_score = _context_score(there, size)
            better = other_score >= score if distance < 0 else other_score > score
            result &= ~(same_row & (there >= 0) & (there < size) & better)
        return result

    def characters(self, window: int, start: int, end: int) -> tuple[int, int]:
        """Character span, end exclusive, of positions `start` to `end` (inclusive) of a window."""
        text = self.context_of[self.row[window]]
        token = self.context.row_splits[text] + self.first[window] - self.offset[window]
        return int(self.context.starts[token + start]), int(self.context.ends[token + end])


def _context_score(inside: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return np.minimum(inside, sizes - 1 - inside) + 0.01 * sizes


def special_tokens(tokenizer: Tokenizer) -> int:
    """Number of special tokens in a window: [CLS], and [SEP] after the question and after the window."""
    return 2 + tokenizer.pair_separators


def room_for_context(settings: TaskSettings, tokenizer: Tokenizer) -> int:
    """Minimum number of context tokens in a window, with the longest question; InputError if there is no room."""
    special = special_tokens(tokenizer)
    room = settings.max_seq_length - settings.max_query_length - special
    if room < 1:
        raise InputError(
            f"task.max_seq_length={settings.max_seq_length} has no room for a context beside a question of "
            f"task.max_query_length={settings.max_query_length} tokens and {special} special tokens: set the first to "
            f"more than {settings.max_query_length + special}, or the second to less"
        )
    return room


def span_features(rows: Sequence[TaskRow], settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """The windows of rows: `input_ids`, `input_mask`, `segment_ids`, int32 [N, T], T the longest window's length.

    If all rows have golds, also `start_positions`, `end_positions` int32 [N] of the first answer, 0 if there is none or
    the window does not contain it whole, and `weights` float32 [N]: 0 for rows whose answer is not in the context (a
    log message counts them). The original skips such rows; here they are kept to be answered.
    """
    room_for_context(settings, tokenizer)
    contexts: dict[str, int] = {}
    context_of = np.array([contexts.setdefault(str(row.inputs["context"]), len(contexts)) for row in rows], np.int64)
    context = tokenizer.encode_with_offsets(contexts)
    question_ids, question_splits = tokenizer.encode(str(row.inputs["question"]) for row in rows)
    question_lengths = np.minimum(np.diff(question_splits), settings.max_query_length)
    windows = _cut(context, context_of, question_lengths, settings, special_tokens(tokenizer))
    arrays = _inputs(windows, question_ids, question_splits, tokenizer)
    if all(row.gold is not None for row in rows):
        labels, windows = _labels(rows, windows, tokenizer)
        arrays.update(labels)
    return TaskFeatures(arrays, windows.row, windows)


def _cut(context: EncodedTexts, context_of: np.ndarray, question_lengths: np.ndarray, settings, special: int):
    """The places of the windows. A context without tokens has one window."""
    tokens = np.diff(context.row_splits)[context_of]  # [R], P
    room = settings.max_seq_length - question_lengths - special
    step = np.minimum(room, settings.doc_stride)
    counts = 1 + np.maximum(-(-(tokens - room) // step), 0)
    row, number = each_place(counts)
    first = number * step[row]
    length = np.minimum(room[row], tokens[row] - first)
    offset = question_lengths[row] + special - 1
    return SpanWindows(context, context_of, row, number, first, length, offset, step[row])


def _inputs(windows: SpanWindows, question_ids, question_splits, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """[CLS] question [SEP] window [SEP], int32 [N, T]."""
    longest = int(np.max(windows.offset + windows.length, initial=0)) + 1
    arrays = {
        name: np.zeros((len(windows.row), longest), np.int32) for name in ("input_ids", "input_mask", "segment_ids")
    }
    # One more element, so that look-ups work even if both are empty.
    question_ids, context_ids = (np.append(ids, tokenizer.pad_id) for ids in (question_ids, windows.context.ids))
    positions = np.arange(longest)
    for block in (slice(start, start + _BLOCK) for start in range(0, len(windows.row), _BLOCK)):
        row, offset = windows.row[block], windows.offset[block, None]
        end = offset + windows.length[block, None]
        question_end = offset - tokenizer.pair_separators
        in_question = (positions > 0) & (positions < question_end)
        in_context = (positions >= offset) & (positions < end)
        question = question_splits[row][:, None] + positions - 1
        tokens = windows.context.row_splits[windows.context_of[row]] + windows.first[block]
        ids = np.full(question.shape, tokenizer.pad_id, np.int32)
        ids[:, 0] = tokenizer.cls_id
        ids[((positions >= question_end) & (positions < offset)) | (positions == end)] = tokenizer.sep_id
        ids[in_question] = question_ids[question[in_question]]
        ids[in_context] = context_ids[(tokens[:, None] + positions - offset)[in_context]]
        arrays["input_ids"][block] = ids
        arrays["input_mask"][block] = positions <= end
        arrays["segment_ids"][block] = (positions >= offset) & (positions <= end) & tokenizer.has_segments
    return arrays


def _labels(rows, windows: SpanWindows, tokenizer: Tokenizer) -> tuple[dict[str, np.ndarray], SpanWindows]:
    """(start_positions, end_positions, weights), and the windows with `not_recovered` set."""
    answers = [row.gold["answers"] for row in rows]
    answer_ids, answer_splits = tokenizer.encode(answer[0]["text"] if answer else "" for answer in answers)
    spans = np.full((len(rows), 2), -1, np.int64)  # context tokens; -1: no answer
    not_recovered = []
    for i, (row, answer) in enumerate(zip(rows, answers, strict=True)):
        if not answer:
            continue
        first, begin = answer[0]["text"], answer[0]["answer_start"]
        words = answer_words(str(row.inputs["context"]), first, begin)
        text = windows.context_of[i]
        tokens = slice(*windows.context.row_splits[text : text + 2])
        starts, ends = windows.context.starts[tokens], windows.context.ends[tokens]
        start, end = 0, 0
        if words and tokenizer.words_stand_alone:
            start, end = map(int, np.searchsorted(starts, words))
        elif words:
            start = int(np.searchsorted(ends, begin, side="right"))
            end = int(np.searchsorted(starts, begin + len(first)))
        if start >= end:  # no words, or words that normalization deletes
            not_recovered.append(i)
            continue
        spans[i] = start, end - 1
        if tokenizer.words_stand_alone:
            answer_tokens = answer_ids[answer_splits[i] : answer_splits[i + 1]]
            spans[i] = improve_answer_span(windows.context.ids[tokens], start, end - 1, answer_tokens)
    if not_recovered:
        notify(
            f"{len(not_recovered)} of {len(rows)} rows are left out of the loss: their first answer is not in the "
            f"context at its answer_start (the first: {rows[not_recovered[0]].row_id})"
        )
    starts, ends = spans[windows.row].T - windows.first
    held = (spans[windows.row, 0] >= 0) & (starts >= 0) & (ends < windows.length)
    weights = np.ones(len(rows), np.float32)
    weights[not_recovered] = 0.0
    labels = {
        "start_positions": np.where(held, starts + windows.offset, 0).astype(np.int32),
        "end_positions": np.where(held, ends + windows.offset, 0).astype(np.int32),
        "weights": weights[windows.row],
    }
    return labels, dataclasses.replace(windows, not_recovered=tuple(rows[i].row_id for i in not_recovered))


def answer_words(context: str, answer: str, answer_start: int) -> tuple[int, int] | None:
    """Character span of the whole words (between `SPACES`) around an answer; None if they do not contain it.

    Both are compared with collapsed white space, the answer's by `str.split`, as in the original. An answer that
    starts in white space starts with the word before.
    """
    last = answer_start + len(answer) - 1
    if not answer or answer_start < 0 or last >= len(context):
        return None
    start, end = _begin_of_word(context, answer_start), _begin_of_word(context, last)
    if start is None or end is None:
        return None
    while end < len(context) and context[end] not in SPACES:
        end += 1
    words = " ".join(re.findall(f"[^{SPACES}]+", context[start:end]))
    return (start, end) if " ".join(answer.split()) in words else None


def _begin_of_word(context: str, place: int) -> int | None:
    """Start of the word at a character, or of the word before white space; None if there is none."""
    while place >= 0 and context[place] in SPACES:
        place -= 1
    while place > 0 and context[place - 1] not in SPACES:
        place -= 1
    return place if place >= 0 else None


def improve_answer_span(tokens: np.ndarray, start: int, end: int, answer: np.ndarray) -> tuple[int, int]:
    """The first run of tokens in `start` to `end` (inclusive) that equals the answer's; else `start`, `end`.

    Annotators marked characters: in "(1895-1943)" the answer may be "1895", which is a token but not a word.
    """
    if len(answer):
        for first in range(start, end + 2 - len(answer)):
            if np.array_equal(tokens[first : first + len(answer)], answer):
                return first, first + len(answer) - 1
    return start, end
