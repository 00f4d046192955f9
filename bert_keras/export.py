"""The pushed model: a SavedModel that takes raw text and needs no file outside itself.

Signatures (B texts, M most masks of a text in the batch, k = 5, T' longest text in pieces, H hidden):
    fill_mask, serving_default   text string[B] -> tokens string[B, M, k], scores float[B, M, k], in order
    encode                       text string[B] -> pooled_output [B, H], sequence_output [B, T', H], tokens [B, T']
    encode_pair                  text, text_pair string[B] -> the same
    next_sentence                text, text_pair string[B] -> is_next float[B]
    evaluate                     examples string[B] (serialized tf.Example) -> sums and weights [B], for the gate
"""

from __future__ import annotations

import tensorflow as tf

from bert_keras.config import BertConfig
from bert_keras.exported_files import CONFIG_FILE as CONFIG_FILE
from bert_keras.exported_files import WEIGHTS_FILE as WEIGHTS_FILE
from bert_keras.exported_files import write_model_files, write_warmup_requests
from bert_keras.features import ExampleLayout, feature_spec
from bert_keras.graph_tokenizer import GraphTokenizer
from bert_keras.heads import BertForPreTraining
from bert_keras.objectives.mlm_nsp import example_sums
from bert_keras.text_inputs import TextInputs, encode, refuse, text_specs
from bert_keras.tokenizer import BertTokenizer
from bert_keras.truncation import truncate_pair as truncate_pair

TOP_K = 5
_TEXT, _PAIR = "A text to warm up.", "And its pair."
_WARMUP_REQUESTS = (
    ("fill_mask", {"text": ["A [MASK] to warm up."]}),
    ("encode", {"text": [_TEXT]}),
    ("encode_pair", {"text": [_TEXT], "text_pair": [_PAIR]}),
    ("next_sentence", {"text": [_TEXT], "text_pair": [_PAIR]}),
)


class ServedBert(tf.Module):
    """Raw text in, answers out: a pre-trained model with its tokenizer in the graph.

    Args:
        model: a float32 model.
        tokenizer: its vocabulary.
        layout: of the examples it was trained on, which `evaluate` reads; T is its `max_seq_length`: longer texts are
            cut at the end.
    """

    def __init__(self, model: BertForPreTraining, tokenizer: BertTokenizer, layout: ExampleLayout):
        super().__init__()
        # Its variables and not the model: Keras would trace a tracked model for a default signature of its own.
        self.variables_used = [weight.value for weight in model.weights]
        self._model = lambda: model
        self._tokenizer, self._layout, self._max_seq_length = tokenizer, layout, layout.max_seq_length
        self._inputs = TextInputs(tokenizer, layout.max_seq_length, "head")
        # The original splits a literal "[MASK]" in a text; whoever asks to fill it means the mask.
        self._pieces_with_mask = GraphTokenizer(
            tokenizer.vocabulary, tokenizer.lower_case, preserve=[tokenizer.vocabulary[tokenizer.mask_id]]
        )

    @tf.function(input_signature=text_specs("text"))
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
        outputs = self._model().backbone(inputs, training=False)
        logits = self._model().mlm_logits(outputs["sequence_output"], positions.to_tensor(0))  # [B, M, V]
        scores, ids = tf.math.top_k(tf.nn.softmax(logits), k=min(TOP_K, len(self._tokenizer.vocabulary)))
        used = tf.sequence_mask(seen)[:, :, None]  # [B, M, 1]
        return {"tokens": tf.where(used, self._inputs.tokens(ids), ""), "scores": tf.where(used, scores, 0.0)}

    @tf.function(input_signature=text_specs("text"))
    def encode(self, text):
        """Encoder outputs of single texts, padded to the longest of the batch; padding's token is "[PAD]"."""
        return encode(self._model().backbone, self._inputs, text)

    @tf.function(input_signature=text_specs("text", "text_pair"))
    def encode_pair(self, text, text_pair):
        """Encoder outputs of text pairs."""
        return encode(self._model().backbone, self._inputs, text, text_pair)

    @tf.function(input_signature=text_specs("text", "text_pair"))
    def next_sentence(self, text, text_pair):
        """The probability that `text_pair` follows `text`."""
        inputs = self._inputs(text, text_pair)
        logits = self._model().nsp_head(self._model().backbone(inputs, training=False)["pooled_output"])
        return {"is_next": tf.nn.softmax(logits)[:, 0]}

    @tf.function(input_signature=text_specs("examples"))
    def evaluate(self, examples):
        """Sums and weights of each serialized pre-training example, float [B]."""
        features = tf.io.parse_example(examples, feature_spec(self._layout, masked=True))
        return example_sums(self._model()(features, training=False), features)


def export_saved_model(
    model: BertForPreTraining,
    tokenizer: BertTokenizer,
    directory: str,
    layout: ExampleLayout,
) -> None:
    """Writes the SavedModel, its warm-up requests, and weights, configuration and vocabulary for fine-tuning."""
    config: BertConfig = model.config
    served = BertForPreTraining(config)  # float32, whatever the model was trained in
    served.build()
    served.set_weights(model.get_weights())
    module = ServedBert(served, tokenizer, layout)
    signatures = {
        name: getattr(module, name) for name in ("fill_mask", "encode", "encode_pair", "next_sentence", "evaluate")
    }
    tf.saved_model.save(module, directory, signatures={"serving_default": module.fill_mask, **signatures})
    write_warmup_requests(directory, _WARMUP_REQUESTS)
    write_model_files(directory, served, config, tokenizer)
