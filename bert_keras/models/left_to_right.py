"""Left-to-right models: those of the paper's ablations (section 5.1, "LTR & No NSP" and "+ BiLSTM"), and GPT-BERT.

Shapes: B batch, T tokens, H hidden, V vocabulary.
"""

import keras
from keras import ops

from bert_keras.models.backbone import SEEDS_PER_LAYER, BertBackbone, ConfiguredModel
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import put
from bert_keras.models.feature_based import bilstm
from bert_keras.models.pretraining_heads import BertForPreTraining, MaskedLMHead


class LeftToRightLM(ConfiguredModel):
    """A causal BERT with the masked-LM head at every token, which predicts the next token; no NSP.

    Call with the backbone's inputs. Returns the backbone's outputs and `lm_logits` float [B, T, V]: those at t predict
    the token at t + 1 (`bert_keras.objectives.next_token`). ValueError: `config.causal` is False: a token would see its
    target.
    """

    def __init__(self, config: BertConfig, seed: int = 0, **kwargs):
        super().__init__(config, seed, **kwargs)
        if not config.causal:
            raise ValueError("model.causal is False; a left-to-right model needs True, or it would see its targets")
        self.backbone = BertBackbone(config, seed, name="bert")
        head_seed = seed + SEEDS_PER_LAYER * (config.num_hidden_layers + 1)
        self.lm_head = MaskedLMHead(config, head_seed, name="predictions")

    def call(self, inputs, training=False):
        outputs = self.backbone(inputs, training=training)
        word_embeddings = self.backbone.embeddings.word_embeddings.embeddings
        return {**outputs, "lm_logits": self.lm_head(outputs["sequence_output"], None, word_embeddings)}


class GptBert(BertForPreTraining):
    """A BERT that also learns next tokens, with the same weights (GPT-BERT, arXiv 2410.24159).

    In training every second row of a batch is read from left to right, without masks, and its next tokens are predicted
    by the masked-LM head. In GPT-BERT also a masked token is predicted from the place before it. Here it is predicted
    where it is, as in AntLM (arXiv 2412.03275), which learns both in turn: so the model is a BERT when it is used.

    Call with the inputs of `BertForPreTraining`. In training B is even, and it returns
        the backbone's outputs and `mlm_logits` float [B / 2, P, V], of the rows 0, 2, ...;
        `lm_logits` float [B / 2, T, V], of the rows 1, 3, ...: those at t predict the token at t + 1.
    """

    def call(self, inputs, training=False):
        if not training:
            return super().call(inputs)
        ids = ops.stack([even_rows(inputs)["input_ids"], text_of_odd_rows(inputs)["input_ids"]], axis=1)
        ids = ops.reshape(ids, ops.shape(inputs["input_ids"]))
        reads_left = ops.zeros_like(ids) + ops.arange(ops.shape(ids)[0], dtype=ids.dtype)[:, None] % 2
        outputs = self.backbone({**inputs, "input_ids": ids, "reads_left": reads_left}, training=True)
        masked = keras.tree.map_structure(lambda states: states[::2], outputs)
        mlm_logits = self.mlm_logits(masked["sequence_output"], even_rows(inputs)["masked_lm_positions"])
        lm_logits = self.mlm_logits(outputs["sequence_output"][1::2], None)
        return {**masked, "mlm_logits": mlm_logits, "lm_logits": lm_logits}


def even_rows(batch):
    """The rows 0, 2, ... of a batch, which a `GptBert` reads with masks in training."""
    return {name: values[::2] for name, values in batch.items()}


def text_of_odd_rows(batch):
    """The rows 1, 3, ... of a batch without masks, which it reads from left to right."""
    rows = {name: values[1::2] for name, values in batch.items()}
    return {**rows, "input_ids": put(rows, rows["masked_lm_ids"])}


class BiLSTM(keras.layers.Layer):
    """A bidirectional LSTM on a left-to-right encoder for fine-tuning, so that every token sees both sides.

    Call: `sequence_output` float [B, T, H], `input_mask` int [B, T], its padding on the right -> float [B, T, H], which
    replaces `sequence_output`; 0 at padding. The paper gives no size: each direction has H / 2 units, so that the heads
    of fine-tuning fit. `hidden_size`: H, even. ValueError: H is odd.
    """

    def __init__(self, hidden_size: int, seed: int = 0, **kwargs):
        super().__init__(**kwargs)
        if hidden_size % 2:
            raise ValueError(f"hidden_size is {hidden_size}; it must be even, each direction has half of it")
        self.hidden_size, self.lstm = hidden_size, bilstm(hidden_size // 2, seed, "lstm")

    def build(self, input_shape):
        self.lstm.build((None, None, self.hidden_size))

    def call(self, sequence_output, input_mask):
        output = self.lstm(sequence_output, mask=ops.cast(input_mask, "bool"))
        return output * ops.cast(input_mask, output.dtype)[:, :, None]
