"""The pushed model: a SavedModel that takes raw text and needs no file outside itself.

Signatures (B texts, M most masks of a text in the batch, k = 5, T' longest text in pieces, H hidden):
    fill_mask, serving_default   text string[B] -> tokens string[B, M, k], scores float[B, M, k], in order
    encode                       text string[B] -> pooled_output [B, H], sequence_output [B, T', H], tokens [B, T']
    encode_pair                  text, text_pair string[B] -> the same
    next_sentence                text, text_pair string[B] -> is_next float[B]
    evaluate                     examples string[B] (serialized tf.Example) -> sums and weights [B], for the gate

A model has the signatures that its objective (`bert_keras.pretraining_models`) taught it: next_sentence of mlm_nsp
alone; fill_mask of those that fill masks. Where there is no fill_mask, serving_default is encode: of a left-to-right
model, and of ELECTRA, whose encoder is the discriminator's. Where no next sentence was learned, the pooler is as it was
drawn, so `pooled_output` says little; ELECTRA, which has none, gives the output of [CLS] there.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import keras
import tensorflow as tf

from bert_keras.config import ExportSettings
from bert_keras.electra import ElectraDiscriminator, ElectraForPreTraining
from bert_keras.exported_files import CONFIG_FILE as CONFIG_FILE
from bert_keras.exported_files import WEIGHTS_FILE as WEIGHTS_FILE
from bert_keras.exported_files import Signature, served_copy, traced, write_model_files, write_warmup_requests
from bert_keras.features import ExampleLayout, feature_spec
from bert_keras.graph_tokenizer import GraphTokenizer
from bert_keras.heads import BertForPreTraining
from bert_keras.left_to_right import LeftToRightLM
from bert_keras.objectives import mlm_nsp
from bert_keras.objectives.objective import Objective
from bert_keras.servable_ops import save_servable
from bert_keras.text_inputs import TextInputs, encode, refuse, text_specs
from bert_keras.tokenizer import BertTokenizer
from bert_keras.train_step import RandomStates
from bert_keras.truncation import truncate_pair as truncate_pair

TOP_K = 5
_TEXTS = ["A text to warm up.", "Another one: longer, with accents (café), 漢字, numbers like 3.14, and a pair."]
_PAIRS = ["And its pair.", "Its pair."]
# Two texts each, of which one is padded; masks are where a model of any length reads them.
_WARMUP_INPUTS = {
    "fill_mask": {"text": ["A [MASK] to warm up.", "[MASK] [MASK]: " + _TEXTS[1]]},
    "encode": {"text": _TEXTS},
    "encode_pair": {"text": _TEXTS, "text_pair": _PAIRS},
    "next_sentence": {"text": _TEXTS, "text_pair": _PAIRS},
}


class ServedBert(tf.Module):
    """Raw text in, answers out: a pre-trained model with its tokenizer in the graph.

    Args:
        model: a model as `served_copy` gives it, of `bert_keras.pretraining_models`.
        tokenizer: its vocabulary.
        layout: of the examples it was trained on, which `evaluate` reads; T is its `max_seq_length`: longer texts are
            cut at the end.
        objective: what it learned.
    """

    def __init__(self, model: keras.Model, tokenizer: BertTokenizer, layout: ExampleLayout, objective: Objective):
        super().__init__()
        # Its variables and not the model: Keras would trace a tracked model for a default signature of its own.
        self.variables_used = [weight.value for weight in model.weights]
        self._model = lambda: model
        encoder = model.discriminator if isinstance(model, ElectraForPreTraining) else model
        self._backbone = lambda: encoder.backbone
        self._objective, self._random_states = objective, RandomStates(model)
        self._tokenizer, self._layout, self._max_seq_length = tokenizer, layout, layout.max_seq_length
        self._inputs = TextInputs(tokenizer, layout.max_seq_length, "head")
        # The original splits a literal "[MASK]" in a text; whoever asks to fill it means the mask.
        self._pieces_with_mask = GraphTokenizer(
            tokenizer.vocabulary, tokenizer.lower_case, preserve=[tokenizer.vocabulary[tokenizer.mask_id]]
        )

    def fill_mask(self, text):
        """The k likeliest tokens for each `[MASK]`, with their probabilities; "" and 0 where a text has fewer masks.

        A text without a mask, or with one beyond the first T - 2 pieces, is an InvalidArgumentError that names it.
        """
        pieces = self._pieces_with_mask(text)
        is_mask = tf.ragged.map_flat_values(tf.equal, pieces, self._tokenizer.mask_id)
        counts = tf.reduce_sum(tf.cast(is_mask, tf.int32), axis=1)
        inputs = self._inputs.pack(pieces)
        where = tf.where(tf.equal(inputs["input_ids"], self._tokenizer.mask_id))  # [masks, 2]: row, position
        positions = tf.RaggedTensor.from_value_rowids(
            tf.cast(where[:, 1], tf.int32), where[:, 0], nrows=tf.shape(text, tf.int64)[0]
        )
        seen = tf.cast(positions.row_lengths(), tf.int32)
        with tf.control_dependencies(
            [
                refuse(tf.equal(counts, 0), "text {} has no [MASK]: write [MASK] where a token is to be filled in"),
                refuse(
                    seen < counts,
                    "text {} has a [MASK] beyond what the model reads, its first "
                    f"{self._max_seq_length - 2} word pieces: shorten the text before it",
                ),
            ]
        ):
            inputs = {name: tf.identity(value) for name, value in inputs.items()}
        outputs = self._backbone()(inputs, training=False)
        table = self._backbone().embeddings.word_embeddings.embeddings
        logits = self._model().mlm_head(outputs["sequence_output"], positions.to_tensor(0), table)  # [B, M, V]
        logits = tf.cast(logits, tf.float32)
        scores, ids = tf.math.top_k(tf.nn.softmax(logits), k=min(TOP_K, len(self._tokenizer.vocabulary)))
        used = tf.sequence_mask(seen)[:, :, None]  # [B, M, 1]
        return {"tokens": tf.where(used, self._inputs.tokens(ids), ""), "scores": tf.where(used, scores, 0.0)}

    def encode(self, text):
        """Encoder outputs of single texts, padded to the longest of the batch; padding's token is "[PAD]"."""
        return encode(self._backbone(), self._inputs, text)

    def encode_pair(self, text, text_pair):
        """Encoder outputs of text pairs."""
        return encode(self._backbone(), self._inputs, text, text_pair)

    def next_sentence(self, text, text_pair):
        """The probability that `text_pair` follows `text`."""
        inputs = self._inputs(text, text_pair)
        logits = self._model().nsp_head(self._backbone()(inputs, training=False)["pooled_output"])
        return {"is_next": tf.nn.softmax(tf.cast(logits, tf.float32))[:, 0]}

    def evaluate(self, examples):
        """Sums and weights of each serialized pre-training example, float [B]."""
        features = tf.io.parse_example(examples, feature_spec(self._layout, masked=True))
        # ELECTRA's generator draws in evaluation too: here always the same of the same batch.
        with self._random_states.of(tf.constant(0, tf.int64)):
            return self._objective.example_sums(self._model()(features, training=False), features)

    def signatures(self) -> dict[str, Signature]:
        """Those that the model can answer, by name; `serving_default` too."""
        arguments: dict[Callable, tuple[str, ...]] = {
            self.encode: ("text",),
            self.encode_pair: ("text", "text_pair"),
            self.evaluate: ("examples",),
        }
        if self._objective.name == mlm_nsp.OBJECTIVE.name:
            arguments[self.next_sentence] = ("text", "text_pair")
        if hasattr(self._model(), "mlm_head"):
            arguments = {self.fill_mask: ("text",), **arguments}
        found = {method.__name__: traced(method, text_specs(*names)) for method, names in arguments.items()}
        return {"serving_default": next(iter(found.values())), **found}


def export_saved_model(
    model: keras.Model,
    tokenizer: BertTokenizer,
    directory: str,
    layout: ExampleLayout,
    objective: Objective | None = None,
    export: ExportSettings | None = None,
) -> None:
    """Writes the SavedModel, its warm-up requests, and weights, configuration and vocabulary for fine-tuning.

    The weights are those of a `BertForPreTraining`, whatever the model: its encoder, and its head as the masked-LM head
    (of SpanBERT without the span boundary head). But of ELECTRA they are an `ElectraDiscriminator`'s, and
    `bert_config.json` also has `embedding_size` and `generator_size`.

    Args:
        model: of `bert_keras.pretraining_models`.
        tokenizer: its vocabulary.
        directory: where all that is written.
        layout: of the examples that `evaluate` reads.
        objective: whose sums `evaluate` gives; None is BERT's, mlm_nsp.
        export: None is as the defaults say.

    Raises:
        StageError: the graph holds an op that TensorFlow Serving cannot run (`bert_keras.servable_ops`).
    """
    served = served_copy(model, (export or ExportSettings()).precision)
    module = ServedBert(served, tokenizer, layout, objective or mlm_nsp.OBJECTIVE)
    signatures = module.signatures()
    save_servable(module, directory, signatures)
    requests = {name: inputs for name, inputs in _WARMUP_INPUTS.items() if name in signatures}
    default = next(iter(requests.values()))  # the first one's, as `signatures` has it
    write_warmup_requests(directory, signatures, [("serving_default", default), *requests.items()])
    write_model_files(directory, _for_fine_tuning(served), _config_json(served), tokenizer)


def _config_json(model: keras.Model) -> str:
    if not isinstance(model, ElectraForPreTraining):
        return model.config.to_json()
    shape = model.config
    sizes = {"embedding_size": shape.embedding_size, "generator_size": shape.generator_size}
    return json.dumps(json.loads(shape.discriminator.to_json()) | sizes, indent=2, sort_keys=True) + "\n"


def _for_fine_tuning(model: keras.Model) -> keras.Model:
    """The model whose weights are written (`export_saved_model`)."""
    if isinstance(model, BertForPreTraining):
        return model
    if isinstance(model, ElectraForPreTraining):
        discriminator = ElectraDiscriminator(model.config)
        discriminator.build()
        discriminator.set_weights(model.discriminator.get_weights())
        return discriminator
    bert = BertForPreTraining(model.config)
    bert.build()
    bert.backbone.set_weights(model.backbone.get_weights())
    head = model.lm_head if isinstance(model, LeftToRightLM) else model.mlm_head
    bert.mlm_head.set_weights(head.get_weights())
    return bert
