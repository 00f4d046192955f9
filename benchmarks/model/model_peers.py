"""Baselines of `bench_model.py`: keras-hub's BERT and the BERT of `transformers` on torch."""

from __future__ import annotations

import numpy as np

from benchmarks.model.model_config import SIZES, VOCAB_SIZE, Case
from benchmarks.model.model_steps import Steps, jax_steps, keras_policy, repeat

# ---------------------------------------------------------------------- keras-hub


def keras_hub(case: Case, xla: bool = False) -> Steps:
    """`BertBackbone` with `MaskedLMHead` and a classifier, trained by Keras (`train_on_batch`'s compiled function)."""
    import keras

    model = _keras_hub_model(case)
    inputs = case.inputs()
    features = {
        "token_ids": inputs["input_ids"],
        "segment_ids": inputs["segment_ids"],
        "padding_mask": inputs["input_mask"],
        "mask_positions": inputs["masked_lm_positions"],
    }
    labels = {"mlm": inputs["masked_lm_ids"], "nsp": inputs["next_sentence_labels"]}
    weights = {"mlm": inputs["masked_lm_weights"], "nsp": np.ones(case.batch, np.float32)}
    adam = keras.optimizers.AdamW(1e-4, weight_decay=0.01, epsilon=1e-6, global_clipnorm=1.0)
    adam.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    cross_entropy = {
        name: keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
        for name in labels
    }
    if keras.backend.backend() == "jax":

        def loss(outputs, batch):
            return sum(cross_entropy[k](batch[1][k], outputs[k], batch[2][k]) for k in labels)

        return jax_steps(case, _OfFeatures(model), adam, (features, labels, weights), loss)
    import tensorflow as tf

    if case.mode == "infer":
        constants = {name: tf.constant(value) for name, value in features.items()}
        predict = tf.function(lambda x: model(x, training=False), jit_compile=xla)
        return repeat(lambda: predict(constants)["nsp"].numpy())
    model.compile(optimizer=adam, loss=cross_entropy, jit_compile=xla)
    model.make_train_function()
    batches = iter(tf.data.Dataset.from_tensors((features, labels, weights)).repeat())
    return repeat(lambda: float(model.train_function(batches)["loss"]))


class _OfFeatures:
    """A model that is called with the features of batches of (features, labels, weights)."""

    def __init__(self, model):
        self._model = model
        self.trainable_variables = model.trainable_variables
        self.non_trainable_variables = model.non_trainable_variables

    def stateless_call(self, trained, others, batch, training=False):
        return self._model.stateless_call(trained, others, batch[0], training=training)


def _keras_hub_model(case: Case):
    import keras
    from keras_hub.layers import MaskedLMHead
    from keras_hub.models import BertBackbone

    layers, width = SIZES[case.size]
    with keras_policy("mixed_bfloat16" if case.precision == "bfloat16" else "float32"):
        backbone = BertBackbone(VOCAB_SIZE, layers, width // 64, width, 4 * width)
        positions = keras.Input((None,), dtype="int32", name="mask_positions")
        head = MaskedLMHead(
            token_embedding=backbone.token_embedding,
            intermediate_activation=lambda x: keras.activations.gelu(x, approximate=True),
            name="mlm",
        )
        mlm = head(backbone.output["sequence_output"], positions)
        nsp = keras.layers.Dense(2, name="nsp")(backbone.output["pooled_output"])
        return keras.Model({**backbone.input, "mask_positions": positions}, {"mlm": mlm, "nsp": nsp})


# ---------------------------------------------------------------------- transformers


def transformers(case: Case, gathered: bool = False, compiled: bool = False) -> Steps:
    """`BertForPreTraining` on torch: as it is, with logits of all tokens, or its head on the masked tokens alone."""
    import torch
    from transformers import BertConfig, BertForPreTraining

    layers, width = SIZES[case.size]
    config = BertConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        hidden_act="gelu_pytorch_tanh",
        max_position_embeddings=max(512, case.length),
        attention_probs_dropout_prob=case.attention_dropout,
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = BertForPreTraining(config).to(device).train(case.mode == "train")
    inputs = {k: torch.from_numpy(v).to(device) for k, v in case.inputs().items()}
    inputs = {k: v.long() if v.dtype == torch.int32 else v for k, v in inputs.items()}
    rows, positions = torch.arange(case.batch, device=device)[:, None], inputs["masked_lm_positions"]
    ids = inputs["masked_lm_ids"].masked_fill(inputs["masked_lm_weights"] == 0, -100)
    all_ids = torch.full_like(inputs["input_ids"], -100)
    counted = ids >= 0
    all_ids[rows.expand_as(positions)[counted], positions[counted]] = ids[counted]
    arguments = {
        "input_ids": inputs["input_ids"],
        "attention_mask": inputs["input_mask"],
        "token_type_ids": inputs["segment_ids"],
    }
    cross_entropy = torch.nn.functional.cross_entropy

    def forward():
        """(loss or None, next-sentence logits)."""
        if not gathered:
            labels = {"labels": all_ids, "next_sentence_label": inputs["next_sentence_labels"]}
            outputs = model(**arguments, **(labels if model.training else {}))
            return outputs.loss, outputs.seq_relationship_logits
        sequence, pooled = model.bert(**arguments)[:2]
        mlm, nsp = model.cls(sequence[rows, positions], pooled)
        if not model.training:
            return mlm, nsp
        labels = inputs["next_sentence_labels"].view(-1)
        return cross_entropy(mlm.flatten(0, 1), ids.view(-1)) + cross_entropy(nsp, labels), nsp

    if compiled:
        forward = torch.compile(forward)
    autocast = torch.autocast(device, torch.bfloat16, enabled=case.precision == "bfloat16")
    if case.mode == "infer":

        def infer():
            with torch.inference_mode(), autocast:
                return forward()[1].float().cpu()

        return repeat(infer)
    decayed = [(p.ndim > 1, p) for p in model.parameters()]
    groups = [{"params": [p for d, p in decayed if d == flag], "weight_decay": 0.01 * flag} for flag in (True, False)]
    adam = torch.optim.AdamW(groups, lr=1e-4, eps=1e-6, fused=True)

    def train():
        adam.zero_grad(set_to_none=True)
        with autocast:
            loss = forward()[0]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        return loss.item()

    return repeat(train)
