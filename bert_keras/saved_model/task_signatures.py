"""The SavedModel of a fine-tuned model, from a task's raw text to answers.

Signatures (B rows):
    serving_default       the inputs of the task's rows (`bert_keras.tasks.rows`) -> answers, by task type:
        classification    text (, text_pair) string[B] -> label string[B], labels string[B, L], scores float[B, L]
        multi_label       likewise; each score is the probability of its label, `label` the likeliest one
        regression        text (, text_pair) string[B] -> score float[B]
        ranking           likewise: the logit of the relevance of text_pair for text
        multiple_choice   text string[B], choices string[B, C] -> choice int64[B], scores float[B, C]
        span              question, context string[B] -> answer string[B], score, null_score_difference float[B],
                          start, end int64[B] (`bert_keras.saved_model.span_answers`)
        tagging           text string[B] -> words, tags string[B, W], scores float[B, W], starts, ends int64[B, W]
        similarity, retrieval    as `embed`
    classify              these two: inputs string[B] (tf.Examples with the features text (, text_pair)) ->
                          classes string[B, L], scores float[B, L]; for TensorFlow Serving's Classify
    regress               regression and ranking: inputs as above -> outputs float[B]; for TensorFlow Serving's Regress
    encode, encode_pair   as for a pre-trained model (`bert_keras.saved_model.pretrained`); not for an ensemble;
                          pooled_output only if the task's head reads the pooler (not for spans, tags, vectors, and
                          features)
    embed                 likewise, with `export.embedding`; of similarity and retrieval always, by `task.pooling`
    evaluate              examples string[B] (rows, serialized) -> row_id, gold (JSON), answer string[B]: the answers of
                          `serving_default` in the format of `bert_keras.tasks.answers`; for spans also
                          null_score_difference float[B]; of a similarity the cosine of the row's texts, of a retrieval
                          their vectors by `embed`, float[B, 2, H]
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_keras.data.tfrecord import bytes_example
from bert_keras.models.ensemble import Ensemble
from bert_keras.saved_model.saved_model_files import (
    Signature,
    served_copy,
    traced,
    write_model_files,
    write_texts,
    write_warmup_requests,
)
from bert_keras.saved_model.servable_ops import save_servable
from bert_keras.saved_model.settings import (
    FAMILY_FIELD,
    MEMBERS_FIELD,
    NO_EMBEDDING,
    EmbeddingSettings,
    ExportSettings,
    embedding_fields,
    family_of_bert,
)
from bert_keras.saved_model.span_answers import SpanAnswers
from bert_keras.saved_model.task_answers import (
    ServedAnswers,
    choice_answers,
    label_answers,
    number_answers,
    tag_answers,
    vector_answers,
)
from bert_keras.saved_model.text_inputs import TextInputs, embed, encode, refuse, shared_backbone, text_specs
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TASK_SPEC_FILE, TaskSettings, TaskSpec
from bert_keras.tasks.table import Task
from bert_keras.tokenizers.protocol import Tokenizer

# Inputs of the warm-up requests: two texts each, one of them padded.
_WARMUP_TEXTS: dict[str, list] = {
    "text": ["A text to warm up.", "Another one: longer, with accents (café), 漢字 and numbers like 3.14."],
    "text_pair": ["And its pair.", "Its pair."],
    "question": ["What gets warm?", "And what does not?"],
    "context": ["It gets warm.", "The café gets warm, 漢字 do not."],
    "choices": [["It gets warm.", "It does not."], ["Neither.", "Both do."]],
}


# By task type: the signature for TensorFlow Serving's calls on tf.Examples, and its outputs from serving_default's.
_EXAMPLE_METHODS = {
    "classification": ("classify", {"classes": "labels", "scores": "scores"}),
    "multi_label": ("classify", {"classes": "labels", "scores": "scores"}),
    "regression": ("regress", {"outputs": "score"}),
}


class ServedTask(tf.Module):
    """A task model with its tokenizer in the graph, from raw text to answers."""

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        task: Task,
        settings: TaskSettings,
        embedding: EmbeddingSettings | None = None,
    ):
        super().__init__()
        self.embedding = embedding or NO_EMBEDDING
        if task.contrastive:
            dimensions = settings.matryoshka_dimensions
            self.embedding = dataclasses.replace(
                self.embedding, pooling=settings.pooling, matryoshka_dimensions=dimensions
            )
        # Track the variables, not the model: Keras would trace a tracked model for another default signature.
        self.variables_used = [weight.value for weight in model.weights]
        self._inputs = TextInputs(tokenizer, settings.max_seq_length, settings.truncation)
        self._model, self._task = lambda: model, task
        if not isinstance(model, Ensemble):
            self._encoded = shared_backbone(model.backbone)
        # Has tables, which must be tracked.
        self._spans = SpanAnswers(model, tokenizer, settings, task) if task.kind == "span" else None
        self._answers = self._answers_of(task)

    def _embed(self, text):
        return embed(self._encoded, self._inputs, self.embedding, text)

    def _answers_of(self, task: Task) -> ServedAnswers:
        def outputs(packed):
            return self._model()(packed, training=False)

        if self._spans is not None:
            names = ("answer", "null_score_difference")
            specs = text_specs("question", "context")
            return ServedAnswers(specs, self._spans, lambda answers: {name: answers[name] for name in names})
        if task.kind in ("classification", "multi_label"):
            return label_answers(outputs, self._inputs, task)
        if task.answer_kind == "regression":
            return number_answers(outputs, self._inputs, task.pair)
        if task.kind == "multiple_choice":
            return choice_answers(outputs, self._inputs)
        if task.kind == "tagging":
            return tag_answers(outputs, self._inputs, task.labels)
        return vector_answers(self._embed, "vectors" if task.kind == "retrieval" else "score")

    def signatures(self) -> dict[str, Signature]:
        """Signatures by name; they use tables of this module, which must outlive them."""
        answers, model = self._answers, self._model()
        default = traced(answers.answer, answers.specs)
        signatures = {
            "serving_default": default,
            "evaluate": traced(lambda examples: _evaluate(answers, default, examples), text_specs("examples")),
        }
        if self._task.answer_kind in _EXAMPLE_METHODS:
            name, outputs = _EXAMPLE_METHODS[self._task.answer_kind]
            signatures[name] = _on_examples(default, [spec.name for spec in answers.specs], outputs)
        if not isinstance(model, Ensemble):
            pooled = self._task.reads_pooler and not model.features
            for name, texts in {"encode": ("text",), "encode_pair": ("text", "text_pair")}.items():
                signatures[name] = traced(
                    lambda *texts: encode(self._encoded, self._inputs, pooled, *texts),
                    text_specs(*texts),
                )
            if self.embedding.pooling != "none":
                signatures["embed"] = traced(self._embed, text_specs("text"))
            if self._task.contrastive:
                signatures["serving_default"] = signatures["embed"]
        return signatures


def export_task_model(
    model: keras.Model,
    task: Task,
    settings: TaskSettings,
    tokenizer: Tokenizer,
    directory: str,
    export: ExportSettings | None = None,
    record: Mapping[str, Any] | None = None,
    held_out: str = "",
) -> None:
    """Write the SavedModel, its warm-up requests, and the files for further training.

    These are weights, configuration, vocabulary, `task_spec.json` and `task_settings.json`; for an `Ensemble` the
    weights of its first model. `record` and errors: as of `bert_keras.saved_model.pretrained.export_saved_model`.
    `held_out`: as in the `TaskSpec` of the rows.
    """
    export = export or ExportSettings()
    served = served_task_model(model, export.precision)
    module = ServedTask(served, tokenizer, task, settings, export.embedding)
    signatures = module.signatures()
    save_servable(module, directory, signatures)
    _name_example_method(directory, task)
    pairs = zip(_WARMUP_TEXTS["text"], _WARMUP_TEXTS["text_pair"], strict=True)
    examples = [bytes_example({"text": [text.encode()], "text_pair": [pair.encode()]}) for text, pair in pairs]
    texts = {**_WARMUP_TEXTS, "inputs": examples}
    requests = [
        (name, {spec.name: texts[spec.name] for spec in function.structured_input_signature[0]})
        for name, function in signatures.items()
        if name != "evaluate"
    ]
    write_warmup_requests(directory, signatures, requests)
    first = model.models[0] if isinstance(model, Ensemble) else model
    size = first.backbone.embedding_size
    fields = {FAMILY_FIELD: family_of_bert(first.config, tokenizer.algorithm), **embedding_fields(module.embedding)}
    if size != first.config.of_width().hidden_size:
        fields |= {FAMILY_FIELD: "electra", "embedding_size": size}
    if isinstance(model, Ensemble):
        fields |= {MEMBERS_FIELD: len(model.models)}
    config = first.config.to_json(**{**fields, **(record or {})})
    write_model_files(directory, first, config, tokenizer)
    settings_json = json.dumps(dataclasses.asdict(settings), indent=2, sort_keys=True) + "\n"
    spec = TaskSpec(task, counts={}, held_out=held_out)
    write_texts(directory, {TASK_SPEC_FILE: spec.to_json(), TASK_SETTINGS_FILE: settings_json})


def _on_examples(answers: Signature, names: Sequence[str], outputs: Mapping[str, str]):
    """A signature on serialized tf.Examples, string [B], with the features `names`, that calls `answers`."""

    def answer(inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = tf.io.parse_example(inputs, {name: tf.io.FixedLenFeature([], tf.string) for name in names})
        answered = answers(*(parsed[name] for name in names))
        return {name: answered[source] for name, source in outputs.items()}

    return traced(answer, text_specs("inputs"))


def _name_example_method(directory: str, task: Task) -> None:
    """Set the method names of the example signatures; `tf.saved_model.save` writes Predict for all."""
    if task.answer_kind in _EXAMPLE_METHODS:
        name, _ = _EXAMPLE_METHODS[task.answer_kind]
        updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(directory)
        updater.replace_method_name(name, f"tensorflow/serving/{name}", tags="serve")
        updater.save()


def _evaluate(answers: ServedAnswers, default: Signature, examples: tf.Tensor) -> dict[str, tf.Tensor]:
    """The answers of `default`, traced from `answers`, to serialized rows string [B]."""
    names = [spec.name for spec in answers.specs]
    scalar = tf.io.FixedLenFeature([], tf.string)
    spec = {name: tf.io.RaggedFeature(tf.string) if name == "choices" else scalar for name in names}
    parsed = tf.io.parse_example(examples, {"row_id": scalar, "gold": scalar, **spec})
    row_id, gold = parsed["row_id"], parsed["gold"]
    if "choices" in spec:
        counts = parsed["choices"].row_lengths()
        other = counts != tf.reduce_max(counts)
        with tf.control_dependencies([refuse(other, "row {} of the batch has fewer choices than another")]):
            parsed["choices"] = parsed["choices"].to_tensor()
    return {"row_id": row_id, "gold": gold, **answers.written(default(*(parsed[name] for name in names)))}


def served_task_model(model: keras.Model, precision: str) -> keras.Model:
    """A copy of a task model, or of an `Ensemble`, that computes in `precision` and runs on any device."""
    if isinstance(model, Ensemble):
        return Ensemble([served_task_model(member, precision) for member in model.models])
    served = served_copy(model, precision)
    for layer in served._flatten_layers():
        if isinstance(layer, keras.layers.LSTM):
            # With a GPU, Keras would put cuDNN's op into the graph, which runs only on GPUs.
            layer.use_cudnn = False
    return served
