"""Answers of a converted graph to raw text, by an engine and NumPy: the signatures of a SavedModel, without TensorFlow.

Signatures, inputs and outputs are those of `bert_keras.saved_model.pretrained` and `task_signatures`, as far as the
folder's model has the outputs for them; of an ELECTRA's two networks only one is there. Texts are tokenized as
training tokenizes them. Legend: B rows, T tokens, W words, M masks, H hidden, V vocabulary.
"""

import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bert_keras import files
from bert_keras.convert.bert_tfx import read_tokenizer
from bert_keras.convert.onnx.network import open_network
from bert_keras.errors import InputError
from bert_keras.saved_model.settings import CONFIG_FILE, EMBEDDING_FIELD, LENGTH_FIELD, EmbeddingSettings
from bert_keras.tasks.answers import served_answers, softmax
from bert_keras.tasks.features import task_features
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.sequences import TokenRuns, joined, like_lengths, pair_sequences, single_sequences
from bert_keras.tasks.settings import TASK_SPEC_FILE, TaskSettings
from bert_keras.tasks.table import Task, task_of
from bert_keras.tokenizers import unicode_tables as ut
from bert_keras.tokenizers.wordpiece import BertTokenizer

TOP_K = 5
# Of a call of the model; with more a row takes longer.
_CALL_TOKENS = 512
# Inputs of the graph, and the names here.
_NAMES = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}
_TEXT, _PAIR = ("text",), ("text", "text_pair")

Arrays = dict[str, np.ndarray]
# Shapes by name, -1 for an unknown size; the type is float32, int64, int32 or object, for strings.
Tensors = Mapping[str, tuple[type, tuple[int, ...]]]


@dataclasses.dataclass(frozen=True)
class Signature:
    """Inputs, strings all, and outputs of a signature, and the function between them."""

    inputs: Tensors
    outputs: Tensors
    answer: Callable[..., Arrays]


class OnnxModel:
    """A folder with `model.onnx` or its int8 form, ready for requests. Thread-safe.

    `directory`: a folder of `bert-tfx convert --to onnx`, or a pushed one with `export.engine=onnx`. `cores`,
    `whole_files`: as of `open_network`. InputError: a file is missing or damaged, or was quantized by an earlier
    release. `task`: a task model's, or None. `vocabulary`: object [V], the tokens' bytes. `signatures`: by name;
    `serving_default` is a task model's task, else fill_mask or encode.
    """

    def __init__(self, directory: str, cores: int = 1, whole_files: bool = False):
        fields = files.read_json(os.path.join(directory, CONFIG_FILE))
        self._embedding = EmbeddingSettings(**fields.get(EMBEDDING_FIELD, {}))
        self._tokenizer = read_tokenizer(directory)
        self.vocabulary, self._token_texts = (
            np.array([text.encode() for text in texts], object)
            for texts in (self._tokenizer.vocabulary, self._tokenizer.token_texts)
        )
        self.network = open_network(directory, cores, whole_files)
        self._outputs = self.network.outputs
        self._pool = ThreadPoolExecutor(cores)
        self._is_causal = fields.get("causal", False)
        self.task = task = None
        if os.path.exists(os.path.join(directory, TASK_SPEC_FILE)):
            self._settings = TaskSettings.load(directory)
            spec = files.read_json(os.path.join(directory, TASK_SPEC_FILE))
            self.task = task = dataclasses.replace(task_of(spec["task"]), labels=tuple(spec["labels"]))
        else:
            length = fields.get(LENGTH_FIELD, fields["max_position_embeddings"])
            try:
                self._settings = TaskSettings(max_seq_length=length)
            except (TypeError, ValueError) as error:
                path = os.path.join(directory, CONFIG_FILE)
                raise InputError(f"{path}: {LENGTH_FIELD} is {length!r} ({error}); write the model again") from error
        self.signatures = self._signatures(fields["hidden_size"], task)

    def _signatures(self, hidden: int, task: Task | None) -> dict[str, Signature]:
        states: dict[str, Any] = {"sequence_output": (np.float32, (-1, -1, hidden)), "tokens": (object, (-1, -1))}
        if "pooler_output" in self._outputs:
            states["pooled_output"] = np.float32, (-1, hidden)
        signatures = {"encode": Signature(_strings(_TEXT), states, self._encode)}
        signatures["encode_pair"] = Signature(_strings(_PAIR), states, self._encode)
        if "sentence_embedding" in self._outputs:
            vectors: Tensors = {"embedding": (np.float32, (-1, hidden)), "num_tokens": (np.int32, (-1,))}
            signatures["embed"] = Signature(_strings(_TEXT), vectors, self._embed)
        if task:
            return {"serving_default": signatures["embed"] if task.contrastive else self._of_task(task), **signatures}
        if "seq_relationship_logits" in self._outputs:
            next_: Tensors = {"is_next": (np.float32, (-1,))}
            signatures["next_sentence"] = Signature(_strings(_PAIR), next_, self._next_sentence)
        logits = self._outputs.get("logits", ())
        if len(logits) == 3 and logits[2] == len(self.vocabulary) and not self._is_causal:
            filled: Tensors = {"tokens": (object, (-1, -1, TOP_K)), "scores": (np.float32, (-1, -1, TOP_K))}
            signatures = {"fill_mask": Signature(_strings(_TEXT), filled, self._fill_mask), **signatures}
        return {"serving_default": next(iter(signatures.values())), **signatures}

    def _of_task(self, task: Task) -> Signature:
        texts, labels = _strings(input_names(task)), len(task.labels)
        number, whole, string = np.float32, np.int64, object
        choices: Tensors = {**_strings(_TEXT), "choices": (string, (-1, -1))}
        by_word = {"words": string, "tags": string, "scores": number, "starts": whole, "ends": whole}
        by_row = {"answer": string, "score": number, "null_score_difference": number, "start": whole, "end": whole}
        by_label = {"label": (string, (-1,)), "labels": (string, (-1, labels)), "scores": (number, (-1, labels))}
        outputs: dict[str, Tensors] = {
            "classification": by_label,
            "multi_label": by_label,
            "regression": {"score": (number, (-1,))},
            "multiple_choice": {"choice": (whole, (-1,)), "scores": (number, (-1, -1))},
            "tagging": {name: (type_, (-1, -1)) for name, type_ in by_word.items()},
            "span": {name: (type_, (-1,)) for name, type_ in by_row.items()},
        }
        inputs = choices if task.kind == "multiple_choice" else texts
        return Signature(inputs, outputs[task.answer_kind], partial(self._answer, task))

    def _run(self, arrays: Mapping[str, np.ndarray], *names: str, at: np.ndarray | None = None) -> list[np.ndarray]:
        """Outputs for the encoder's inputs int32 [B, ..., T]; with `at` bool [B, T] those of its places, [K, ...]."""

        def run(rows: Any, length: int) -> list[np.ndarray]:
            feed = {name: arrays[_NAMES[name]][rows, ..., :length].astype(np.int64) for name in self.network.inputs}
            outputs = self.network.compute(feed, names)
            return outputs if at is None else [output[at[rows, :length]] for output in outputs]

        mask = arrays["input_mask"]
        if len(mask) == 1:
            return run(slice(None), mask.shape[-1])
        calls = like_lengths(mask, _CALL_TOKENS, step=self.network.length_step)
        parts = list(self._pool.map(run, *zip(*calls, strict=True))) if len(calls) > 1 else [run(*calls[0])]
        return [joined(output, calls, at) for output in zip(*parts, strict=True)]

    def _pack(self, *texts: np.ndarray, most: int = 0) -> Arrays:
        """The encoder's inputs for texts or pairs, object [B] each."""
        runs = [TokenRuns.of(self._tokenizer, _decoded(column)) for column in texts]
        length = min(self._settings.max_seq_length, most or self._settings.max_seq_length)
        if len(runs) == 2:
            return pair_sequences(runs[0], runs[1], length, self._tokenizer)
        return single_sequences(runs[0], length, self._settings.truncation, self._tokenizer)

    def _encode(self, *texts: np.ndarray) -> Arrays:
        packed = self._pack(*texts)
        pooled = ["pooler_output"] if "pooler_output" in self._outputs else []
        names = ("sequence_output", "pooled_output")
        outputs = dict(zip(names, self._run(packed, "last_hidden_state", *pooled), strict=False))
        # Those of padding depend on the rows that share the call.
        outputs["sequence_output"] *= packed["input_mask"][..., None].astype(np.float32)
        return {**outputs, "tokens": self.vocabulary[packed["input_ids"]]}

    def _embed(self, text: np.ndarray) -> Arrays:
        packed = self._pack(text, most=self._embedding.max_seq_length)
        (vectors,) = self._run(packed, "sentence_embedding")
        return {"embedding": vectors, "num_tokens": packed["input_mask"].sum(axis=1, dtype=np.int32)}

    def _next_sentence(self, *texts: np.ndarray) -> Arrays:
        return {"is_next": softmax(self._run(self._pack(*texts), "seq_relationship_logits")[0])[:, 0]}

    def _fill_mask(self, text: np.ndarray) -> Arrays:
        tokenizer, mask = self._tokenizer, self._tokenizer.format.mask
        split = [decoded.split(mask) for decoded in _decoded(text)]
        if not isinstance(tokenizer, BertTokenizer):  # its mask takes the white space before it
            split = [[*(part.rstrip() for part in parts[:-1]), parts[-1]] for parts in split]
        ids, splits = tokenizer.encode([part for parts in split for part in parts])
        pieces = iter(np.split(ids, splits[1:-1]))
        rows = [
            np.concatenate([np.append(next(pieces), tokenizer.mask_id).astype(np.int32) for _ in parts])[:-1]
            for parts in split
        ]
        lengths = np.array([len(row) for row in rows], np.int64)
        runs = TokenRuns(np.concatenate([*rows, np.zeros(0, np.int32)]), np.cumsum(lengths) - lengths, lengths)
        packed = single_sequences(runs, self._settings.max_seq_length, "head", tokenizer)
        is_mask = packed["input_ids"] == tokenizer.mask_id
        visible = is_mask.sum(axis=1)
        for number, parts in enumerate(split):
            if len(parts) == 1:
                raise ValueError(f"text {number} has no {mask}: write {mask} where a token is to be filled in")
            if visible[number] < len(parts) - 1:
                raise ValueError(
                    f"text {number} has a {mask} beyond what the model reads, its first "
                    f"{self._settings.max_seq_length - 2} wordpieces: shorten the text before it"
                )
        scores = softmax(self._run(packed, "logits", at=is_mask)[0])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :TOP_K]
        place = np.arange(max(visible, default=0)) < visible[:, None]  # [B, M]
        tokens, odds = np.full((*place.shape, TOP_K), b"", object), np.zeros((*place.shape, TOP_K), np.float32)
        tokens[place], odds[place] = self._token_texts[best], np.take_along_axis(scores, best, axis=1)
        return {"tokens": tokens, "scores": odds}

    def _answer(self, task: Task, *columns: np.ndarray) -> Arrays:
        texts, words = [_decoded(column) for column in columns], []
        if task.kind == "multiple_choice" and not columns[1].shape[1]:
            raise ValueError("text 0 has no choices: give at least one")
        if task.kind == "tagging":
            words = [_words(text) for text in texts[0]]
            texts = [[" ".join(word for word, _, _ in row_words) for row_words in words]]
        rows = [
            TaskRow(str(number), dict(zip(input_names(task), row, strict=True)))
            for number, row in enumerate(zip(*texts, strict=True))
        ]
        features = task_features(rows, task, self._settings, self._tokenizer)
        names = ("start_logits", "end_logits") if task.kind == "span" else ("logits",)
        outputs = self._run(features.arrays, *names)
        by_name = dict(zip(names, outputs, strict=True)) if task.kind == "span" else outputs[0]
        answers = served_answers(by_name, features, rows, task, self._settings)
        if task.kind == "tagging":
            is_word = answers["tags"] != b""  # [B, W]
            for place, (name, empty) in enumerate({"words": b"", "starts": 0, "ends": 0}.items()):
                answers[name] = np.full(is_word.shape, empty, np.int64 if place else object)
                values: list[Any] = [word[place] for row_words in words for word in row_words]
                answers[name][is_word] = np.array(values if place else encoded(values), answers[name].dtype)
        return answers


def encoded(value: str | Sequence[str]) -> Any:
    """The bytes of a text, or of texts, as a signature takes them."""
    return value.encode() if isinstance(value, str) else [text.encode() for text in value]


def input_names(task: Task | None) -> tuple[str, ...]:
    """The inputs of a task's signature; of a pre-trained model `text`."""
    if task is None or task.contrastive:
        return _TEXT
    special = {"span": ("question", "context"), "multiple_choice": ("text", "choices")}
    return special.get(task.kind, _PAIR if task.pair else _TEXT)


def _words(text: str) -> list[tuple[str, int, int]]:
    """Words between the original's white space, and their characters without punctuation at the edges.

    As in `bert_keras.saved_model.task_answers.tag_answers`.
    """
    points = np.array([ord(character) for character in text], np.int64)
    kind, space = ut.fold_table(lower_case=False).kind[points], ut.white_space()[points]
    blocks = np.array(ut.IDEOGRAPH_BLOCKS)
    ideograph = ((points[:, None] >= blocks[:, 0]) & (points[:, None] <= blocks[:, 1])).any(axis=1)
    inner = np.flatnonzero(((kind & ut.ISOLATED) == 0) | ideograph)
    words = []
    for start, end in np.flatnonzero(np.diff(~space, prepend=False, append=False)).reshape(-1, 2).tolist():
        inside = inner[(inner >= start) & (inner < end)]
        edges = (int(inside[0]), int(inside[-1]) + 1) if len(inside) else (start, end)
        words.append((text[start:end], *edges))
    return words


def _strings(names: Sequence[str]) -> Tensors:
    return dict.fromkeys(names, (object, (-1,)))


def _decoded(texts: np.ndarray) -> list[Any]:
    """Texts [B], or of texts [B, C] tuples."""
    return [text.decode("utf-8", "ignore") if isinstance(text, bytes) else tuple(_decoded(text)) for text in texts]
