"""Task models for fine-tuning (paper section 4; run_classifier.py, run_squad.py).

All weights are trained, except an unused pooler. Logits have the compute dtype.
Shapes: B batch, T tokens, C choices, H hidden.
"""

import functools

from keras import ops

from bert_keras.models.backbone import SEEDS_PER_LAYER, BertBackbone, ConfiguredModel, pooled
from bert_keras.models.bilm import BiLMBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.dropout import Dropout
from bert_keras.models.feature_based import FeatureReader
from bert_keras.models.layers import MASKED_SCORE, dense
from bert_keras.models.left_to_right import BiLSTM

# Before the output layer; run_classifier.py hard-codes keep_prob=0.9, independent of the configuration.
CLASSIFIER_DROPOUT = 0.1


class _TaskModel(ConfiguredModel):
    """The encoder and one dense output layer, `classifier`.

    A sentence's output is that of the first token, in a causal encoder that of the last (`BertBackbone`), as in GPT (A.
    Radford et al. 2018, section 3.2). `has_bilstm` puts a BiLSTM on the encoder (paper section 5.1, "+ BiLSTM"); a
    sentence's output is then the forward direction's last token and the backward direction's first. RoBERTa
    (`drops_encoder_output`) also has dropout before the pooler, the dense layer of its head (fairseq,
    models/roberta/model.py, `RobertaClassificationHead`); `bert_keras.finetuning.init_checkpoint` sets it for training.
    `embedding_size` and `head` are `BertBackbone`'s; a head with a normalisation is under the labels of tokens, too.

    With `features` the encoder is frozen, without dropout, and a `FeatureReader` of `lstm_units` is on it; a sentence's
    output is then the maximum over its tokens (GLUE's BiLSTM baseline, arXiv 1804.07461, section 5). A biLM always has
    them, by default `scalar_mix`: ELMo is not fine-tuned.
    """

    arguments = ("num_labels", "has_bilstm", "embedding_size", "features", "lstm_units", "head")
    num_outputs = 0  # 0: `num_labels`
    has_bias = True
    reads_pooler = True
    drops_encoder_output = False

    def __init__(
        self,
        config: BertConfig,
        num_labels: int = 0,
        seed: int = 0,
        has_bilstm: bool = False,
        embedding_size: int | None = None,
        features: str = "",
        lstm_units: int = 768,
        head: str = "tanh",
        **kwargs,
    ):
        super().__init__(config, seed, **kwargs)
        self.num_labels, outputs = num_labels, self.num_outputs or num_labels
        if outputs < 1:
            raise ValueError(f"num_labels is {num_labels}; it must be at least 1")
        is_bilm = config.encoder == "bilm"
        encoder = BiLMBackbone if is_bilm else functools.partial(BertBackbone, head=head)
        self.backbone = encoder(config, seed, embedding_size=embedding_size, name="bert")
        self.head, self.pools_tokens = head, head.startswith("norm") and not self.reads_pooler
        self.embedding_size = self.backbone.embedding_size
        self.features, self.lstm_units = features or ("scalar_mix" if is_bilm else ""), lstm_units
        self.backbone.trainable = not self.features
        head_seed = seed + SEEDS_PER_LAYER * (config.num_hidden_layers + 1)
        self.dropout = Dropout(CLASSIFIER_DROPOUT, seed=head_seed + 1)
        self.classifier = dense(config, outputs, head_seed, "classifier", use_bias=self.has_bias)
        self.bilstm = BiLSTM(config.hidden_size, head_seed + 2, name="bilstm") if has_bilstm else None
        self.reader = None
        if self.features:
            self.reader = FeatureReader(config, self.features, lstm_units, head_seed + 6, name="reader")
        if not self.reads_pooler and not self.pools_tokens:
            # It has no gradient, and Keras would warn at every start.
            self.backbone.pooler.trainable = False

    def build(self, input_shape=None):
        self.classifier.build((None, 2 * self.lstm_units if self.reader else self.config.hidden_size))
        super().build()

    def _classify_pooled(self, inputs, training):
        """Backbone's inputs int [B, T] -> float [B, outputs]: dropout and dense on the pooled output."""
        if self.reader is not None:
            x = self._sequence(inputs, training)
            x = ops.max(x + (1.0 - ops.cast(inputs["input_mask"], x.dtype))[:, :, None] * MASKED_SCORE, axis=1)
            return self.classifier(self.dropout(x, training=training))
        outputs = self.backbone(inputs, training=training)
        pooled = outputs["pooled_output"]
        if self.bilstm is not None:
            forward, backward = ops.split(self.bilstm(outputs["sequence_output"], inputs["input_mask"]), 2, axis=-1)
            last = ops.maximum(ops.sum(ops.cast(inputs["input_mask"], "int32"), axis=1) - 1, 0)
            ends = [ops.take_along_axis(forward, last[:, None, None], axis=1)[:, 0], backward[:, 0]]
            pooled = self.backbone.pooler(ops.concatenate(ends, axis=-1))
        elif self.drops_encoder_output and training:
            first = self.backbone.pooled_tokens(outputs["sequence_output"], inputs)
            # One draw for both: a second call would draw the same numbers as the next step's first call.
            mask = self.dropout(ops.ones_like(ops.concatenate([first, first], axis=-1)), training=True)
            before, after = ops.split(mask, 2, axis=-1)
            return self.classifier(self.backbone.pooler(first * before) * after)
        return self.classifier(self.dropout(pooled, training=training))

    def _sequence(self, inputs, training):
        """Backbone's inputs int [B, T] -> float [B, T, H], of features [B, T, 2 `lstm_units`]."""
        if self.reader is not None:
            return self.reader(self.backbone(inputs, training=False), inputs["input_mask"], training=training)
        sequence = self.backbone(inputs, training=training)["sequence_output"]
        sequence = sequence if self.bilstm is None else self.bilstm(sequence, inputs["input_mask"])
        return self.backbone.pooler(sequence) if self.pools_tokens else sequence

    @property
    def has_bilstm(self) -> bool:
        """Return whether a BiLSTM is on the encoder."""
        return self.bilstm is not None


class BertForSequenceClassification(_TaskModel):
    """One label for a sentence or a pair (run_classifier.py; paper section 4.1).

    Call with the backbone's inputs, int [B, T] -> logits float [B, num_labels].
    """

    def call(self, inputs, training=False):
        return self._classify_pooled(inputs, training)


class BertForRegression(_TaskModel):
    """One number for a sentence or a pair, as for STS-B.

    Call with the backbone's inputs, int [B, T] -> float [B], or of lists, int [B, C, T] -> float [B, C].
    """

    num_outputs = 1

    def call(self, inputs, training=False):
        shape = ops.shape(inputs["input_ids"])[:-1]
        return ops.reshape(self._classify_pooled(_flat(inputs) if len(shape) > 1 else inputs, training), shape)


class BertForMultipleChoice(_TaskModel):
    """One of C continuations, as for SWAG (paper section 4.4); each choice is a separate sequence.

    The only new weight is a vector, whose product with the pooled output is the score of a choice (a bias would be
    the same for all). Call with the backbone's inputs, int [B, C, T] -> logits float [B, C].
    """

    num_outputs, has_bias = 1, False

    def call(self, inputs, training=False):
        batch, choices, _ = ops.shape(inputs["input_ids"])
        return ops.reshape(self._classify_pooled(_flat(inputs), training), (batch, choices))


def _flat(inputs):
    """Backbone's inputs int [B, C, T] -> int [B C, T]."""
    names = ("input_ids", "input_mask", "segment_ids")
    return {name: ops.reshape(inputs[name], (-1, ops.shape(inputs[name])[2])) for name in names}


class BertForSentenceSimilarity(ConfiguredModel):
    """Vectors of texts, float32 of length 1, without new weights (arXiv 1908.10084, section 3; arXiv 2104.08821).

    Call with the backbone's inputs for C texts a row, int [B, C, T] -> [B, C, H].
    """

    arguments = ("pooling", "embedding_size")

    def __init__(self, config: BertConfig, pooling: str, seed: int = 0, embedding_size: int | None = None, **kwargs):
        super().__init__(config, seed, **kwargs)
        self.backbone = BertBackbone(config, seed, embedding_size=embedding_size, name="bert")
        self.pooling, self.embedding_size = pooling, self.backbone.embedding_size
        # Unused, so it has no gradient, and Keras would warn at every start.
        self.backbone.pooler.trainable = False

    def call(self, inputs, training=False):
        flat = _flat(inputs)
        states = ops.cast(self.backbone(flat, training=training)["sequence_output"], "float32")
        vectors = pooled(states, ops.cast(flat["input_mask"], "float32"), self.pooling)
        return ops.reshape(ops.normalize(vectors), (*ops.shape(inputs["input_ids"])[:2], self.config.hidden_size))


class BertForSpanExtraction(_TaskModel):
    """Start and end of an answer (run_squad.py; paper section 4.2), without dropout before the output layer.

    Call with the backbone's inputs, int [B, T] -> dict of `start_logits`, `end_logits`, float [B, T].
    Padding, question and [CLS] get logits too, as in the original: the softmax of the loss covers all T, and
    `bert_keras.tasks.span.answers` leaves them out.
    """

    num_outputs, reads_pooler = 2, False

    def call(self, inputs, training=False):
        logits = self.classifier(self._sequence(inputs, training))  # [B, T, 2]
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}


class BertForTokenClassification(_TaskModel):
    """One label per token, as for named entities (paper section 5.3): no CRF, no dependence between labels.

    Call with the backbone's inputs, int [B, T] -> logits float [B, T, num_labels].
    """

    reads_pooler = False

    def call(self, inputs, training=False):
        return self.classifier(self.dropout(self._sequence(inputs, training), training=training))
