"""The model's inputs, and the labels, of rows, by task type, as in google-research/bert's run_classifier.py.

Shapes: N rows or sequences, C choices or texts of a row, T tokens.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskFeatures, TaskRow
from bert_keras.tasks.sequences import TokenRuns, first_tokens, pair_sequences, single_sequences
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.span.features import span_features
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

_TEXTS = ("text", "text_pair", "negative")


def task_features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """The model's inputs; for rows with golds also the objective's labels, and `weights` float32 [N], all 1.

    Sequences are padded to the longest, at most `settings.max_seq_length`. By task type:

        classification         `labels` int32 [N]
        multi_label            `labels` int32 [N, labels], 1 or 0
        regression, ranking    `labels` float32 [N]; of lists, N of C passages: inputs [N, C, T], `labels` int32 are 0
        multiple_choice        inputs [N, C, T]; `labels` int32 [N]
        span                   as `span_features`
        tagging                `token_labels` int32 [N, T]: -1 unless a word begins, and for a tag that is no label of
                               the task, which the model cannot learn but the score counts. `windows` int32 [N, T]: the
                               number, from 0, of the word of the row that begins at a position; -1: none
        similarity, retrieval  inputs [N, C, T]; a scored pair weighs as much as its score of the highest

    Raises:
        InputError: an invalid gold, only some rows have one, or rows have different numbers of texts; names the row.
    """
    kind = task.kind
    if kind == "span":
        return span_features(rows, settings, tokenizer)
    if kind == "tagging":
        return _tag_features(rows, task, settings, tokenizer)
    if task.contrastive:
        return _vector_features(rows, task, settings, tokenizer)
    if kind == "ranking" and settings.list_size and rows and _has_golds(rows):
        kind, rows = "multiple_choice", _lists(rows, settings.list_size)
    text = TokenRuns.of(tokenizer, [str(row.inputs["text"]) for row in rows])
    if kind == "multiple_choice":
        arrays = _by_choice(text, rows, task, settings, tokenizer)
    elif task.pair:
        pair = TokenRuns.of(tokenizer, [str(row.inputs["text_pair"]) for row in rows])
        arrays = pair_sequences(text, pair, settings.max_seq_length, tokenizer)
    else:
        arrays = single_sequences(text, settings.max_seq_length, settings.truncation, tokenizer)
    if _has_golds(rows):
        if kind == "multiple_choice":
            labels = _numbers_of_choices(rows, task)
        else:
            labels = _labels(rows, task) if task.has_labels else _numbers(rows, task)
        arrays |= {"labels": labels, "weights": np.ones(len(rows), np.float32)}
    return TaskFeatures(arrays, np.arange(len(rows)))


def _has_golds(rows: Sequence[TaskRow]) -> bool:
    """True if all rows have golds; InputError: only some have one."""
    missing = [row for row in rows if row.gold is None]
    if missing and len(missing) < len(rows):
        raise InputError(
            f"row {missing[0].row_id} has no gold, as {len(missing)} of the {len(rows)} rows of its split; "
            "give golds for all rows, or for none as in a test split"
        )
    return not missing


def _labels(rows: Sequence[TaskRow], task: Task) -> np.ndarray:
    ids, several = {label: number for number, label in enumerate(task.labels)}, task.kind == "multi_label"
    labels = np.zeros((len(rows), len(ids)) if several else len(rows), np.int32)
    for number, row in enumerate(rows):
        for label in row.gold if several else [row.gold]:
            if label not in ids:
                raise InputError(
                    f"row {row.row_id} of {task.name} has the label {label!r}; it must be one of "
                    f"{', '.join(task.labels)}"
                )
            labels[(number, ids[label]) if several else number] = 1 if several else ids[label]
    return labels


def _numbers(rows: Sequence[TaskRow], task: Task) -> np.ndarray:
    labels = [row.gold[1] if task.kind == "ranking" else row.gold for row in rows]
    for row, label in zip(rows, labels, strict=True):
        if isinstance(label, bool) or not isinstance(label, (int, float)) or not np.isfinite(label):
            raise InputError(f"row {row.row_id} of {task.name} has the gold {row.gold!r}; it must be a number")
    return np.array(labels, np.float32)


def _numbers_of_choices(rows: Sequence[TaskRow], task: Task) -> np.ndarray:
    for row in rows:
        if isinstance(row.gold, bool) or row.gold not in range(len(row.inputs["choices"])):
            raise InputError(
                f"row {row.row_id} of {task.name} has the gold {row.gold!r}; it must be the number of a choice, "
                f"from 0 to {len(row.inputs['choices']) - 1}"
            )
    return np.array([row.gold for row in rows], np.int32)


def _lists(rows: Sequence[TaskRow], size: int) -> list[TaskRow]:
    """Each relevant passage as the first choice beside the first others of its query, repeated if they are too few."""
    others: dict[str, list[str]] = {}
    for row in rows:
        if not row.gold[1]:
            others.setdefault(row.gold[0], []).append(str(row.inputs["text_pair"]))
    lists = []
    for row in rows:
        if row.gold[1] and row.gold[0] in others:
            negatives = itertools.islice(itertools.cycle(others[row.gold[0]]), size - 1)
            choices = (str(row.inputs["text_pair"]), *negatives)
            lists.append(TaskRow(row.row_id, {"text": row.gold[0], "choices": choices}, 0))
    if not lists:
        raise InputError("no query has a relevant passage and another one, as task.list_size needs; set it to 0")
    return lists


def _by_choice(
    text: TokenRuns, rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer
) -> dict[str, np.ndarray]:
    """Each choice after the text, [CLS] text [SEP] choice [SEP] (paper, section 4.4)."""
    choices = len(rows[0].inputs["choices"]) if rows else 1
    for row in rows:
        if len(row.inputs["choices"]) != choices:
            raise InputError(
                f"row {row.row_id} of {task.name} has {len(row.inputs['choices'])} choices, row {rows[0].row_id} "
                f"{choices}; all must have the same number"
            )
    choice = TokenRuns.of(tokenizer, [choice for row in rows for choice in row.inputs["choices"]])
    text = text[np.repeat(np.arange(len(rows)), choices)]
    arrays = pair_sequences(text, choice, settings.max_seq_length, tokenizer)
    return {name: array.reshape(len(rows), choices, array.shape[1]) for name, array in arrays.items()}


def _tag_features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    """A word's tag is that of its first token (paper, section 5.3); its other tokens have no label.

    A word without a first token in the sequence (normalized to nothing, or beyond T) has no label in training and the
    answer "O", so the score counts a missed entity; ELECTRA's code drops such words.
    """
    words = [text.split(" ") if (text := str(row.inputs["text"])) else [] for row in rows]
    counts = np.fromiter(map(len, words), np.int64, len(rows))  # [N]
    word_tokens = TokenRuns.of_splits(*tokenizer.encode_words([word for row_words in words for word in row_words]))
    row_tokens, row, word, column = first_tokens(word_tokens, counts, settings)
    arrays = single_sequences(row_tokens, settings.max_seq_length, settings.truncation, tokenizer)
    begins = np.full(arrays["input_ids"].shape, -1, np.int32)
    begins[row, column] = word
    if _has_golds(rows):
        ids = {label: number for number, label in enumerate(task.labels)}
        for task_row, row_words in zip(rows, words, strict=True):
            if len(task_row.gold) != len(row_words):
                raise InputError(
                    f"row {task_row.row_id} of {task.name} has {len(row_words)} words, but {len(task_row.gold)} tags; "
                    "each word must have one"
                )
        tags = np.array([ids.get(tag, -1) for task_row in rows for tag in task_row.gold], np.int32)
        arrays["token_labels"] = np.full_like(begins, -1)
        arrays["token_labels"][row, column] = tags[(np.cumsum(counts) - counts)[row] + word]
        arrays["weights"] = np.ones(len(rows), np.float32)
    return TaskFeatures(arrays, np.arange(len(rows)), begins)


def _vector_features(rows: Sequence[TaskRow], task: Task, settings: TaskSettings, tokenizer: Tokenizer) -> TaskFeatures:
    names = [name for name in _TEXTS if rows and name in rows[0].inputs]
    for row in rows:
        if (given := [name for name in _TEXTS if name in row.inputs]) != names:
            raise InputError(
                f"row {row.row_id} of {task.name} has {' and '.join(given)}, row {rows[0].row_id} has "
                f"{' and '.join(names)}; all must have the same"
            )
    names = names if len(names) > 1 else ["text", "text"]
    texts = TokenRuns.of(tokenizer, [str(row.inputs[name]) for row in rows for name in names])
    arrays = single_sequences(texts, settings.max_seq_length, settings.truncation, tokenizer)
    arrays = {name: array.reshape(len(rows), len(names), array.shape[1]) for name, array in arrays.items()}
    scores = np.array([row.gold if isinstance(row.gold, (int, float)) else np.nan for row in rows], np.float32)
    # Rows without a score count like those with the highest.
    arrays["weights"] = np.nan_to_num(np.maximum(scores, 0) / max(1e-5, np.fmax.reduce(scores, initial=0)), nan=1.0)
    return TaskFeatures(arrays, np.arange(len(rows)))
