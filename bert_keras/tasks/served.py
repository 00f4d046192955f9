"""The SavedModel of a fine-tuned model: a task's raw text in, its answers out.

Signatures (B rows):
    serving_default       the inputs of the task's rows (`bert_keras.tasks.rows`) -> answers, by kind:
        classification    text (, text_pair) string[B] -> label string[B], labels string[B, L], scores float[B, L]
        regression        text (, text_pair) string[B] -> score float[B]
        multiple_choice   text string[B], choices string[B, C] -> choice int64[B], scores float[B, C]
        span              question, context string[B] -> answer string[B], score, null_score_difference float[B],
                          start, end int64[B] (`bert_keras.tasks.span_served`)
        tagging           text string[B] -> words, tags string[B, W], scores float[B, W], starts, ends int64[B, W]
    classify              of classification: inputs string[B] (tf.Examples with the features text (, text_pair)) ->
                          classes string[B, L], scores float[B, L]; for TensorFlow Serving's Classify
    regress               of regression: inputs as above -> outputs float[B]; for its Regress
    encode, encode_pair   as those of a pre-trained model (`bert_keras.export`); an ensemble has none
    evaluate              examples string[B] (rows, serialized) -> row_id, gold (JSON), answer string[B]: the answers of
                          `serving_default`, as `bert_keras.tasks.answers` writes them; of spans also
                          null_score_difference float[B]
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import keras
import tensorflow as tf

from bert_keras.config import ExportSettings
from bert_keras.ensemble import Ensemble
from bert_keras.exported_files import (
    Signature,
    served_copy,
    traced,
    write_model_files,
    write_texts,
    write_warmup_requests,
)
from bert_keras.servable_ops import save_servable
from bert_keras.tasks.served_answers import ChoiceAnswers, LabelAnswers, NumberAnswers, ServedAnswers, TextAnswers
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TASK_SPEC_FILE, TaskSettings, TaskSpec
from bert_keras.tasks.span_served import SpanAnswers
from bert_keras.tasks.table import Task
from bert_keras.tasks.tagging_served import TagAnswers
from bert_keras.text_inputs import TextInputs, encode, refuse, text_specs
from bert_keras.tokenization import Tokenizer

# What a request to warm up says, by input: two texts each, of which one is padded.
_WARMUP_TEXTS: dict[str, list] = {
    "text": ["A text to warm up.", "Another one: longer, with accents (café), 漢字 and numbers like 3.14."],
    "text_pair": ["And its pair.", "Its pair."],
    "question": ["What gets warm?", "And what does not?"],
    "context": ["It gets warm.", "The café gets warm, 漢字 do not."],
    "choices": [["It gets warm.", "It does not."], ["Neither.", "Both do."]],
}


# By kind: the signature for TensorFlow Serving's calls on tf.Examples, and its outputs out of those of serving_default.
_EXAMPLE_METHODS = {
    "classification": ("classify", {"classes": "labels", "scores": "scores"}),
    "regression": ("regress", {"outputs": "score"}),
}


class ServedTask(tf.Module):
    """Raw text in, answers out: a task model with its tokenizer in the graph.

    Args:
        model: as `served_task_model` gives it.
        tokenizer: its vocabulary.
        task: with its labels.
        settings: those it was trained with.
    """

    def __init__(self, model: keras.Model, tokenizer: Tokenizer, task: Task, settings: TaskSettings):
        super().__init__()
        # Its variables and not the model: Keras would trace a tracked model for a default signature of its own.
        self.variables_used = [weight.value for weight in model.weights]
        self._inputs = TextInputs(tokenizer, settings.max_seq_length, settings.truncation)
        self._model, self._task = lambda: model, task
        self._answers = _answers(model, self._inputs, tokenizer, task, settings)

    def signatures(self) -> dict[str, Signature]:
        """By name; they hold tables of this module, which is to outlive them."""
        answers, model = self._answers, self._model()
        default = traced(answers.__call__, answers.specs)
        found = {
            "serving_default": default,
            "evaluate": traced(lambda examples: _evaluate(answers, default, examples), text_specs("examples")),
        }
        if self._task.kind in _EXAMPLE_METHODS:
            name, outputs = _EXAMPLE_METHODS[self._task.kind]
            found[name] = _on_examples(default, [spec.name for spec in answers.specs], outputs)
        if not isinstance(model, Ensemble):
            for name, texts in {"encode": ("text",), "encode_pair": ("text", "text_pair")}.items():
                found[name] = traced(lambda *texts: encode(model.backbone, self._inputs, *texts), text_specs(*texts))
        return found


def export_task_model(
    model: keras.Model,
    task: Task,
    settings: TaskSettings,
    tokenizer: Tokenizer,
    directory: str,
    export: ExportSettings | None = None,
) -> None:
    """Writes the SavedModel, its warm-up requests, and what is needed to go on from the model.

    That is its weights, configuration, vocabulary, `task_spec.json` and `task_settings.json`; of an ensemble the
    weights of its first model.

    Args:
        model: a task model (`bert_keras.task_heads`, `bert_keras.feature_based`), or an `Ensemble` of such.
        task: with the labels of the data.
        settings: those it was trained with.
        tokenizer: its vocabulary.
        directory: of the SavedModel.
        export: None is as the defaults say.

    Raises:
        StageError: the graph holds an op that TensorFlow Serving cannot run (`bert_keras.servable_ops`).
    """
    served = served_task_model(model, (export or ExportSettings()).precision)
    module = ServedTask(served, tokenizer, task, settings)
    signatures = module.signatures()
    save_servable(module, directory, signatures)
    _name_example_method(directory, task)
    texts = {**_WARMUP_TEXTS, "inputs": _warmup_examples()}
    requests = [
        (name, {of.name: texts[of.name] for of in function.structured_input_signature[0]})
        for name, function in signatures.items()
        if name != "evaluate"
    ]
    write_warmup_requests(directory, signatures, requests)
    first = served.models[0] if isinstance(served, Ensemble) else served
    write_model_files(directory, first, first.config.to_json(), tokenizer)
    settings_json = json.dumps(dataclasses.asdict(settings), indent=2, sort_keys=True) + "\n"
    write_texts(directory, {TASK_SPEC_FILE: TaskSpec(task, counts={}).to_json(), TASK_SETTINGS_FILE: settings_json})


def _answers(
    model: keras.Model, inputs: TextInputs, tokenizer: Tokenizer, task: Task, settings: TaskSettings
) -> ServedAnswers:
    def outputs(packed):
        return model(packed, training=False)

    if task.kind == "classification":
        return LabelAnswers(outputs, inputs, task.labels, task.pair)
    if task.kind == "regression":
        return NumberAnswers(outputs, inputs, task.pair)
    if task.kind == "multiple_choice":
        return ChoiceAnswers(outputs, inputs)
    if task.kind == "tagging":
        return TagAnswers(outputs, inputs, task.labels)
    return TextAnswers(SpanAnswers(model, tokenizer, settings, task))


def _on_examples(answers: Signature, names: Sequence[str], outputs: Mapping[str, str]):
    """A function of serialized tf.Examples, string [B], with features called `names`, that asks `answers`."""

    def answer(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(inputs, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
        answered = answers(*(parsed[name] for name in names))
        return {name: answered[source] for name, source in outputs.items()}

    return traced(answer, text_specs("inputs"))


def _name_example_method(directory: str, task: Task) -> None:
    """Says in the SavedModel which of its signatures is for which call: `tf.saved_model.save` knows Predict only."""
    if task.kind in _EXAMPLE_METHODS:
        name, _ = _EXAMPLE_METHODS[task.kind]
        updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(directory)
        updater.replace_method_name(name, f"tensorflow/serving/{name}", tags="serve")
        updater.save()


def _warmup_examples() -> list[bytes]:
    pairs = zip(_WARMUP_TEXTS["text"], _WARMUP_TEXTS["text_pair"], strict=True)
    examples = []
    for texts in pairs:
        example = tf.train.Example()
        for name, text in zip(("text", "text_pair"), texts, strict=True):
            example.features.feature[name].bytes_list.value.append(text.encode())
        examples.append(example.SerializeToString(deterministic=True))
    return examples


def _evaluate(answers: ServedAnswers, default: Signature, examples: tf.Tensor) -> dict[str, tf.Tensor]:
    """What `default`, of `answers`, answers to serialized rows string [B]."""
    names = [spec.name for spec in answers.specs]
    one = tf.io.FixedLenFeature([], tf.string)
    spec = {name: tf.io.RaggedFeature(tf.string) if name == "choices" else one for name in names}
    parsed = tf.io.parse_example(examples, {"row_id": one, "gold": one, **spec})
    row_id, gold = parsed["row_id"], parsed["gold"]
    if "choices" in spec:
        counts = parsed["choices"].row_lengths()
        other = counts != tf.reduce_max(counts)
        with tf.control_dependencies([refuse(other, "row {} of the batch has fewer choices than another")]):
            parsed["choices"] = parsed["choices"].to_tensor()
    return {"row_id": row_id, "gold": gold, **answers.written(default(*(parsed[name] for name in names)))}


def served_task_model(model: keras.Model, precision: str) -> keras.Model:
    """A copy of a task model, or of an `Ensemble`, that computes in `precision` and that runs on any device."""
    if isinstance(model, Ensemble):
        return Ensemble([served_task_model(member, precision) for member in model.models])
    served = served_copy(model, precision)
    for layer in served._flatten_layers():
        if isinstance(layer, keras.layers.LSTM):
            # Where there is a GPU, Keras would put cuDNN's into the graph, which runs nowhere else.
            layer.use_cudnn = False
    return served
