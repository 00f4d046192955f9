"""The task of a fine-tuned model: from the class and the labels in `config.json`, and back.

Sequence classification is the task text, with one label text-score, with several a text text-labels; text-pair,
text-pair-score or text-pair-labels if the labels name entailment, or the model is a cross-encoder. `--task` names
another one of its type.
"""

import dataclasses
import os
from collections.abc import Collection
from typing import Any, NamedTuple

from bert_keras import files
from bert_keras.convert.architecture import Architecture, class_end
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.huggingface.sentence_transformers import ACTIVATIONS, read_activation
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.errors import InputError
from bert_keras.tasks.settings import TaskSettings
from bert_keras.tasks.table import Task, task_of

_TASKS = {"ForTokenClassification": "ner", "ForQuestionAnswering": "squad1.1", "ForMultipleChoice": "swag"}
# `problem_type` of `config.json` by task type.
_MULTI_LABEL = "multi_label_classification"
_PROBLEMS = {"classification": "single_label_classification", "multi_label": _MULTI_LABEL, "regression": "regression"}
# Tokens that `transformers`' pipeline of questions reads at once, and its longest answer.
_SPAN_LENGTH, _ANSWER_LENGTH = 384, 15


class FineTuned(NamedTuple):
    """A folder's architecture, with the head of its class, its task and settings; without these: the reason."""

    architecture: Architecture
    task: Task | None = None
    settings: TaskSettings | None = None
    why_not: str = ""


def read_fine_tuned(path: str, architecture: Architecture, length: int, names: Collection[str]) -> FineTuned:
    """The task of the model with the `config.json` at `path`, of `length` tokens; `names` are its head's tensors.

    InputError: the ids of labels are not 0, 1, ..., or the head computes another function.
    """
    fields, heads = files.read_json(path), FAMILIES[architecture.family].task_heads
    name = str((fields.get("architectures") or [""])[0])
    end = next(filter(name.endswith, heads), "")
    if not end:
        return FineTuned(architecture, why_not=f", since {name or 'it'} is no class with a known head")
    head, labels, problem = heads[end], _labels(path, fields), fields.get("problem_type")
    for field, value in head.must_be.items():
        if fields.get(field, value) != value:
            raise InputError(f"{path}: {field} is {fields[field]!r}; supported: {value!r}")
    if problem == "regression" and len(labels) > 1:
        return FineTuned(architecture, why_not=f", since problem_type is {problem}, with {len(labels)} outputs")
    activation = read_activation(os.path.dirname(path), fields, len(labels) > 1 and problem != _MULTI_LABEL)
    is_pair = activation is not None or any("entail" in label.lower() for label in labels)
    answer = "-labels" if problem == _MULTI_LABEL else "-score" * (len(labels) == 1)
    task = task_of(_TASKS.get(end, f"text{'-pair' * is_pair}{answer}"))
    task = dataclasses.replace(task, labels=labels if task.has_labels else ())
    function: Any = head.functions[len(head.functions) > 1 and fields.get("classifier_pooling") == "mean"]
    settings = TaskSettings(length, head=function if head.layer else "")
    # Without a word on it, transformers' pipeline and sentence-transformers have a sigmoid for one label.
    if task.kind == "regression":
        function = activation or ("identity" if problem == "regression" else "sigmoid")
        settings = dataclasses.replace(settings, activation=function)
    if task.kind == "span":
        length = min(length, _SPAN_LENGTH)
        question = min(settings.max_query_length, length // 4)
        settings = TaskSettings(length, max_query_length=question, max_answer_length=_ANSWER_LENGTH, head=settings.head)
    outputs = 2 if task.kind == "span" else len(task.labels) or 1
    tuned = dataclasses.replace(architecture, head=head, outputs=outputs)
    if not all(name.startswith(tuned.row.head_prefixes) for name in names):
        return FineTuned(architecture, why_not=", since its class has other tensors")
    return FineTuned(tuned, task, settings)


def _labels(path: str, fields: dict[str, Any]) -> tuple[str, ...]:
    stored = fields.get("id2label") or {number: f"LABEL_{number}" for number in range(fields.get("num_labels", 2))}
    try:
        by_id = {int(number): str(label) for number, label in stored.items()}
        return tuple(by_id[number] for number in range(len(stored)))
    except (AttributeError, ValueError, KeyError) as error:
        raise InputError(f"{path}: id2label is {stored!r}; it must have a label for each of 0, 1, ...") from error


def as_task(folder: ModelFolder, name: str) -> ModelFolder:
    """A fine-tuned model as one of another task of its type, such as of pairs of texts.

    Labels without names (LABEL_0, ...) get those of the task, in its order. InputError: the task is of another type, or
    has other labels.
    """
    task, before = task_of(name), folder.task
    if before is None or task.answer_kind != before.answer_kind:
        its = before.kind if before else "no task"
        raise InputError(f"{folder.path}: --task {name} is for {task.kind}, but the model is for {its}")
    has_names = not all(label.startswith("LABEL_") for label in before.labels)
    labels = before.labels if has_names or len(before.labels) != len(task.labels) else task.labels
    if task.labels and sorted(labels) != sorted(task.labels):
        raise InputError(
            f"{folder.path}: --task {name} has the labels {', '.join(task.labels)}, but the model {', '.join(labels)}; "
            "--task text and text-pair take any labels"
        )
    return dataclasses.replace(folder, task=dataclasses.replace(task, labels=labels))


def fine_tuned_fields(folder: ModelFolder, architecture: Architecture) -> dict[str, Any]:
    """The fields of `config.json` for the head of a task model; empty for another model.

    InputError: `transformers` has no class with such a head.
    """
    task, settings, head = folder.task, folder.settings, architecture.head
    if task is None or settings is None:
        return {}
    function = settings.on_encoder["head"]
    further = [f"task.{name}" for name in ("bilstm", "features") if getattr(settings, name)]
    if head is None or further or (head.layer and function not in head.functions):
        remedy = f", fine-tune it with --set task.head={head.functions[0]}," if head and not further else ""
        raise InputError(
            f"{folder.path or 'the model'}: transformers has no {architecture.title} for {task.name} with "
            f"{further[0] if further else f'task.head={function}'}: keep it as bert-tfx{remedy} or write the encoder "
            f"alone, in Python: bert_keras.export(bert_keras.from_checkpoint({folder.path!r}).without_task(), "
            "'NEW', 'hf')"
        )
    fields: dict[str, Any] = {"architectures": [architecture.row.class_stem + class_end(folder.model)]}
    if len(head.functions) > 1:
        fields["classifier_pooling"] = "mean" if function == head.functions[1] else "cls"
    if task.answer_kind in _PROBLEMS and settings.activation == "identity":
        fields["problem_type"] = _PROBLEMS[task.answer_kind]
    if task.answer_kind in _PROBLEMS and task.pair:
        activation = "sigmoid" if task.kind == "multi_label" else settings.activation
        fields["sentence_transformers"] = {"activation_fn": ACTIVATIONS[activation]}
    if labels := task.labels if task.has_labels else ("LABEL_0",) * (task.answer_kind == "regression"):
        fields["id2label"] = {str(number): label for number, label in enumerate(labels)}
        fields["label2id"] = {label: number for number, label in enumerate(labels)}
    return fields
