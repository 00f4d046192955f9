"""The pushed model: a self-contained SavedModel that takes raw text.

Signatures (B texts, M maximum number of masks of a text in the batch, k = 5, T' tokens of the longest text, H hidden):
    fill_mask, serving_default   text string[B] -> tokens string[B, M, k], scores float[B, M, k], in order
    encode                       text string[B] -> sequence_output [B, T', H], tokens [B, T'], pooled_output [B, H]
    encode_pair                  text, text_pair string[B] -> the same
    embed                        text string[B] -> embedding float[B, H], num_tokens int32[B]; with `export.embedding`
    next_sentence                text, text_pair string[B] -> is_next float[B]; of the order of sentences, too
    evaluate                     examples string[B] (serialized tf.Example) -> sums and weights [B], for the gate; for a
                                 model trained here also those of baselines (`bert_keras.objectives.unigram`)

A model has the signatures that its objective (`bert_keras.objectives.registry`) trains: next_sentence only for mlm_nsp
and mlm_sop; fill_mask for objectives with masks. Of an ELECTRA the generator answers fill_mask, the discriminator
encode, which is serving_default; so it is for a left-to-right model and a biLM, which have no fill_mask; a biLM's
`sequence_output` is the mean of its layers. Only prediction of next sentences, or of their order, trains the pooler;
without it there is no `pooled_output`. No signature reads the untrained parts of a converted model; if a head is
untrained, there is no evaluate.
"""

import dataclasses
import os
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.example_format import ExampleLayout, feature_spec
from bert_keras.models.bilm import BiLM
from bert_keras.models.config import BertConfig, Part
from bert_keras.models.dropout import RandomStates
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining, ElectraGenerator
from bert_keras.models.left_to_right import LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import mlm_nsp
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.unigram import guessed_sums
from bert_keras.saved_model.saved_model_files import (
    Signature,
    served_copy,
    traced,
    write_model_files,
    write_warmup_requests,
)
from bert_keras.saved_model.servable_ops import save_servable
from bert_keras.saved_model.settings import (
    FAMILY_FIELD,
    GENERATOR_FILE,
    LENGTH_FIELD,
    NO_EMBEDDING,
    UNTRAINED_FIELD,
    EmbeddingSettings,
    ExportSettings,
    embedding_fields,
    family_of_bert,
)
from bert_keras.saved_model.text_inputs import (
    TextInputs,
    embed,
    encode,
    mask_tokenizer_of,
    refuse,
    shared_backbone,
    text_specs,
)
from bert_keras.tokenizers.protocol import Tokenizer

TOP_K = 5
# Trained only by prediction of next sentences or of their order.
_PAIR_PARTS: frozenset[Part] = frozenset(("pooler", "next-sentence head"))
_TEXTS = ["A text to warm up.", "Another one: longer, with accents (café), 漢字, numbers like 3.14, and a pair."]
_PAIRS = ["And its pair.", "Its pair."]
# Two texts each, one of them padded; masks are near the start, so that a model of any length reads them.
_WARMUP_INPUTS = {
    "fill_mask": {"text": ["A [MASK] to warm up.", "[MASK] [MASK]: " + _TEXTS[1]]},
    "encode": {"text": _TEXTS},
    "embed": {"text": _TEXTS},
    "encode_pair": {"text": _TEXTS, "text_pair": _PAIRS},
    "next_sentence": {"text": _TEXTS, "text_pair": _PAIRS},
}


class ServedBert(tf.Module):
    """A pre-trained model with its tokenizer in the graph, from raw text to answers.

    `model`: result of `served_copy`, for a model of `bert_keras.objectives.registry`. `layout`: layout of its training
    examples, which `evaluate` reads; T is its `max_seq_length`; longer texts are truncated at the end. `unigram`:
    result of `bert_keras.objectives.unigram.unigram_model`; None: unknown.
    """

    def __init__(
        self,
        model: keras.Model,
        tokenizer: Tokenizer,
        layout: ExampleLayout,
        objective: Objective,
        unigram: np.ndarray | None = None,
        untrained: Collection[Part] = (),
        embedding: EmbeddingSettings | None = None,
    ):
        super().__init__()
        self._embedding = embedding or NO_EMBEDDING
        self._unigram, self._untrained = unigram, untrained
        # Track the variables, not the model: Keras would trace a tracked model for another default signature.
        self.variables_used = [weight.value for weight in model.weights]
        self._model = lambda: model
        is_electra = isinstance(model, ElectraForPreTraining)
        encoder, filler = (model.discriminator, model.generator) if is_electra else (model, model)
        self._filler, self._encoded = lambda: filler, shared_backbone(encoder.backbone)
        self._filled = shared_backbone(filler.backbone) if is_electra else self._encoded
        self._objective, self._random_states = objective, RandomStates(model)
        self._tokenizer, self._layout, self._max_seq_length = tokenizer, layout, layout.max_seq_length
        self._inputs = TextInputs(tokenizer, layout.max_seq_length, "head")
        self._tokenize_with_mask = mask_tokenizer_of(tokenizer, self._inputs.tokenize)

    def fill_mask(self, text):
        """The k most likely tokens for each `[MASK]`, with their probabilities; "" and 0 for texts with fewer masks.

        A token is given as its text, with the space before it in byte-level BPE and SentencePiece; with byte-level BPE
        the mask is `<mask>`. A text without a mask, or with one beyond the first T - 2 tokens, is an
        InvalidArgumentError that names it.
        """
        ids = self._tokenize_with_mask(text)
        mask_id = self._tokenizer.mask_id
        mask = self._tokenizer.vocabulary[mask_id]
        counts = tf.math.unsorted_segment_sum(tf.cast(ids.values == mask_id, tf.int32), ids.value_rowids(), ids.nrows())
        inputs = self._inputs.pack(ids)
        is_mask = tf.cast(inputs["input_ids"] == mask_id, tf.int32)
        visible = tf.reduce_sum(is_mask, axis=1)
        with tf.control_dependencies(
            [
                refuse(tf.equal(counts, 0), f"text {{}} has no {mask}: write {mask} where a token is to be filled in"),
                refuse(
                    visible < counts,
                    f"text {{}} has a {mask} beyond what the model reads, its first "
                    f"{self._max_seq_length - 2} wordpieces: shorten the text before it",
                ),
            ]
        ):
            inputs = {name: tf.identity(value) for name, value in inputs.items()}
        used = tf.sequence_mask(visible)  # [B, M]
        positions = tf.argsort(is_mask, direction="DESCENDING", stable=True)[:, : tf.shape(used)[1]]
        table, states = self._filler().backbone.embeddings.word_embeddings.embeddings, self._filled(inputs)
        logits = self._filler().mlm_head(states["sequence_output"], tf.where(used, positions, 0), table)  # [B, M, V]
        logits = tf.cast(logits, tf.float32)
        scores, ids = tf.math.top_k(tf.nn.softmax(logits), k=min(TOP_K, len(self._tokenizer.vocabulary)))
        tokens, used = self._inputs.token_texts(ids), used[:, :, None]
        return {"tokens": tf.where(used, tokens, ""), "scores": tf.where(used, scores, 0.0)}

    def encode(self, text):
        """Encoder outputs of single texts, padded to the longest of the batch with the token "[PAD]"."""
        return encode(self._encoded, self._inputs, "pooler" not in self._untrained, text)

    def encode_pair(self, text, text_pair):
        """Encoder outputs of text pairs."""
        return encode(self._encoded, self._inputs, "pooler" not in self._untrained, text, text_pair)

    def embed(self, text):
        """One vector for each text, and the number of its tokens."""
        return embed(self._encoded, self._inputs, self._embedding, text)

    def next_sentence(self, text, text_pair):
        """The probability that `text_pair` follows `text`, not a random text, or not the reverse (mlm_sop)."""
        inputs = self._inputs(text, text_pair)
        logits = self._model().nsp_head(self._encoded(inputs)["pooled_output"])
        return {"is_next": tf.nn.softmax(tf.cast(logits, tf.float32))[:, 0]}

    def evaluate(self, examples):
        """Sums and weights of each serialized pre-training example, float [B]."""
        features = tf.io.parse_example(examples, feature_spec(self._layout, masked=True))
        # ELECTRA's generator samples in evaluation too; a fixed call number makes it deterministic.
        with keras.StatelessScope(self._random_states.of(0)):
            sums = self._objective.example_sums(self._model()(features, training=False), features)
        return sums if self._unigram is None else sums | guessed_sums(self._objective.name, features, self._unigram)

    def signatures(self) -> dict[str, Signature]:
        """The signatures that the model can answer, by name, with `serving_default`."""
        arguments: dict[Callable, tuple[str, ...]] = {self.encode: ("text",), self.encode_pair: ("text", "text_pair")}
        learns_pairs = self._objective.name in mlm_nsp.PAIR_KEYS
        fills_masks = hasattr(self._filler(), "mlm_head") and not {"masked-LM head", "generator"} & {*self._untrained}
        judged = {"masked-LM head", "generator", *(_PAIR_PARTS if learns_pairs else ())}
        if not judged & {*self._untrained}:
            arguments[self.evaluate] = ("examples",)
        if self._embedding.pooling != "none":
            arguments[self.embed] = ("text",)
        if learns_pairs and not _PAIR_PARTS & {*self._untrained}:
            arguments[self.next_sentence] = ("text", "text_pair")
        if fills_masks:
            fill = {self.fill_mask: ("text",)}
            arguments = fill | arguments if self._filler() is self._model() else arguments | fill
        signatures = {method.__name__: traced(method, text_specs(*names)) for method, names in arguments.items()}
        return {"serving_default": next(iter(signatures.values())), **signatures}


def export_saved_model(
    model: keras.Model,
    tokenizer: Tokenizer,
    directory: str,
    layout: ExampleLayout,
    objective: Objective | None = None,
    export: ExportSettings | None = None,
    unigram: np.ndarray | None = None,
    untrained: Collection[Part] | None = None,
    record: Mapping[str, Any] | None = None,
) -> None:
    """Write the SavedModel, its warm-up requests, and weights, configuration and vocabulary for fine-tuning.

    The weights are written as a `BertForPreTraining`: the encoder, and the head as the masked-LM head (for SpanBERT
    without the span boundary head); a biLM's are its own. For ELECTRA they are an `ElectraDiscriminator`'s, with an
    `ElectraGenerator`'s in a file of its own, each with whole embeddings; `bert_config.json` has the sizes, too.
    StageError: the graph holds an op that TensorFlow Serving cannot run (`bert_keras.saved_model.servable_ops`).

    Args:
        model: a model of `bert_keras.objectives.registry`, or an ELECTRA's discriminator alone.
        layout: layout of the examples that `evaluate` reads.
        objective: objective of `evaluate`; None: BERT's, mlm_nsp.
        untrained: as in `ServedBert`, listed in `bert_config.json`; None: the parts that the objective does not train.
        record: further fields of `bert_config.json`: the model's family, which by default is that of its class and
            tokenizer, and where its weights began.
    """
    export = export or ExportSettings()
    served = served_copy(model, export.precision)
    objective = objective or mlm_nsp.OBJECTIVE
    if untrained is None:
        untrained = () if objective.name in mlm_nsp.PAIR_KEYS else sorted(_PAIR_PARTS)
    module = ServedBert(served, tokenizer, layout, objective, unigram, untrained, export.embedding)
    signatures = module.signatures()
    save_servable(module, directory, signatures)
    requests = {name: inputs for name, inputs in _WARMUP_INPUTS.items() if name in signatures}
    if "fill_mask" in requests:
        mask = tokenizer.format.mask
        requests["fill_mask"] = {"text": [text.replace("[MASK]", mask) for text in requests["fill_mask"]["text"]]}
    # `signatures` makes the first one the default.
    default = requests[next(name for name in signatures if name != "serving_default")]
    write_warmup_requests(directory, signatures, [("serving_default", default), *requests.items()])
    extra = _config_fields(model, tokenizer, untrained, layout)
    extra |= embedding_fields(export.embedding) | dict(record or {})
    config = getattr(model.config, "discriminator", model.config).to_json(**extra)
    write_model_files(directory, _for_fine_tuning(model), config, tokenizer)
    if isinstance(model, ElectraForPreTraining) and "generator" not in untrained:
        _network(ElectraGenerator, model.generator).save_weights(os.path.join(directory, GENERATOR_FILE))


def _config_fields(
    model: keras.Model, tokenizer: Tokenizer, untrained: Collection[Part], layout: ExampleLayout
) -> dict[str, Any]:
    """Fields of `bert_config.json` beside the encoder's: family, ELECTRA's sizes, untrained parts, length."""
    shape: BertConfig | ElectraConfig = model.config
    if isinstance(shape, ElectraConfig):
        # Its file has no pooler, and no untrained generator.
        untrained = [part for part in untrained if part == "discriminator head"]
        sizes = {field.name: getattr(shape, field.name) for field in dataclasses.fields(shape)[1:]}
        sizes = {name: value for name, value in sizes.items() if value != getattr(ElectraConfig, name, None)}
        shape = shape.discriminator
        family = "deberta-v2" if shape.relative_attention == "disentangled" else "electra"
        fields: dict[str, Any] = {FAMILY_FIELD: family, **sizes}
    else:
        fields = {FAMILY_FIELD: family_of_bert(shape, tokenizer.algorithm)}
    fields |= {UNTRAINED_FIELD: list(untrained)} if untrained else {}
    return fields | (
        {LENGTH_FIELD: layout.max_seq_length} if layout.max_seq_length < shape.max_position_embeddings else {}
    )


def _for_fine_tuning(model: keras.Model) -> keras.Model:
    """The model whose weights `export_saved_model` writes."""
    if isinstance(model, (BertForPreTraining, BiLM, ElectraDiscriminator)):
        return model
    if isinstance(model, ElectraForPreTraining):
        return _network(ElectraDiscriminator, model.discriminator)
    bert = BertForPreTraining(model.config)
    bert.build()
    bert.backbone.set_weights(model.backbone.get_weights())
    head = model.lm_head if isinstance(model, LeftToRightLM) else model.mlm_head
    bert.mlm_head.set_weights(head.get_weights())
    return bert


def _network(kind: type[keras.Model], trained: keras.Model) -> keras.Model:
    """A network of an ELECTRA, with embeddings of its own."""
    network = kind(trained.config)
    network.build()
    network.set_weights(trained.get_weights())
    network.word_table().assign(trained.word_table())
    return network
