"""A tag a word (paper section 5.3): the first piece of a word is labelled, the others are not (FACTS D7).

A word that has no first piece in the sequence (nothing is left of it, or it is beyond T) has no label in training, and
is answered "O": the score counts it as what it is, a miss where it is an entity; ELECTRA's code drops it.
Shapes: N rows, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import keras
import numpy as np

from bert_keras.config import BertConfig
from bert_keras.errors import InputError
from bert_keras.feature_based import FeatureBasedTokenClassifier
from bert_keras.objectives.labels import label_objective
from bert_keras.task_heads import BertForTokenClassification
from bert_keras.tasks.classification import has_golds
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import Pieces, kept_of_single, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task
from bert_keras.tokenization import Tokenizer

objective = label_objective("tagging", "token_labels")
OUTSIDE = "O"


def create_model(config: BertConfig, task: Task, settings: TaskSettings, seed: int) -> keras.Model:
    """See `bert_keras.tasks.kinds.Kind`; with `settings.features` the encoder is frozen."""
    labels = len(task.labels)
    if settings.features:
        return FeatureBasedTokenClassifier(config, labels, _layer(settings.features), settings.lstm_units, seed)
    return BertForTokenClassification(config, labels, seed, has_bilstm=settings.bilstm)


def _layer(features: str) -> str | int:
    """A layer's number is written as text."""
    return int(features) if features.lstrip("-").isdigit() else features


def features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """See `bert_keras.tasks.kinds.Kind`.

    `token_labels` int32 [N, T]: -1 where no word begins, and for a tag that is none of the task's labels, which a model
    cannot learn and the score counts. `windows` is int32 [N, T]: which word of the row begins at a position, from 0;
    -1: none.
    """
    words = [str(row.inputs["text"]).split(" ") for row in rows]
    counts = np.fromiter(map(len, words), np.int64, len(rows))  # [N]
    pieces = Pieces.of_words(tokenizer, [word for of_row in words for word in of_row])
    ends = np.cumsum(counts)
    starts = np.concatenate([pieces.starts, [len(pieces.ids)]])
    of_rows = Pieces(pieces.ids, starts[ends - counts], starts[ends] - starts[ends - counts])
    arrays = single_sequences(of_rows, settings.max_seq_length, settings.truncation, tokenizer)
    row, word, column = _first_pieces(pieces, of_rows, counts, settings)
    begins = np.full(arrays["input_ids"].shape, -1, np.int32)
    begins[row, column] = word
    if has_golds(rows):
        ids = {label: number for number, label in enumerate(task.labels)}
        for of_row, texts in zip(rows, words, strict=True):
            if len(of_row.gold) != len(texts):
                raise InputError(
                    f"row {of_row.row_id} of {task.name} has {len(texts)} words, but {len(of_row.gold)} tags; "
                    "each word must have one"
                )
        tags = np.array([ids.get(tag, -1) for of_row in rows for tag in of_row.gold], np.int32)
        arrays["token_labels"] = np.full_like(begins, -1)
        arrays["token_labels"][row, column] = tags[(ends - counts)[row] + word]
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)), begins)


def _first_pieces(
    pieces: Pieces, of_rows: Pieces, counts: np.ndarray, settings: TaskSettings
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, word of the row and position, int64 [words] each, of the words whose first piece is in the sequence."""
    row = np.repeat(np.arange(len(counts)), counts)
    word = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
    head, tail = kept_of_single(of_rows.lengths, settings.max_seq_length, settings.truncation)
    number = pieces.starts - of_rows.starts[row]  # of the first piece, in its row
    cut = (of_rows.lengths - head - tail)[row]
    kept = (pieces.lengths > 0) & ((number < head[row]) | (number >= head[row] + cut))
    column = 1 + number - np.where(number < head[row], 0, cut)
    return row[kept], word[kept], column[kept]


def answers(
    outputs: np.ndarray, features: TaskFeatures, rows: Sequence[TaskRow], task: Task, settings: TaskSettings
) -> list[list[str]]:
    """The likeliest tag of each word, of logits [N, T, labels] where it begins."""
    answers = [[OUTSIDE] * len(str(row.inputs["text"]).split(" ")) for row in rows]
    words = features.windows
    row, column = np.nonzero(words >= 0)
    likeliest = np.argmax(outputs[row, column], axis=-1)
    for i, word, label in zip(row.tolist(), words[row, column].tolist(), likeliest.tolist(), strict=True):
        answers[i][word] = task.labels[label]
    return answers
