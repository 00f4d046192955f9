"""What `bench_model.py` measures, each in a process of its own: BERT for pre-training, in one framework or another.

    python benchmarks/model_contestants.py CONTESTANT CASE        (CASE: the fields of `Case`, as JSON)

It builds the model, warms up, and then does as many steps as each line of its input says; a line of JSON answers each.
CPU seconds are of all threads of the process, while it does the steps and not before.

All of a case see the same batch and do the same work: a step is the forward pass with dropout, the loss of masked
tokens and next sentences, the backward pass, clipping by the global norm and an Adam step with decoupled decay.
"""

from __future__ import annotations

import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# Layers, width.
SIZES = {"mini": (4, 256), "base": (12, 768), "large": (24, 1024)}
VOCAB_SIZE = 30_522
# Of a product of two float32 or bfloat16 matrices of this many rows and columns: the machine's rate.
MATMUL_SIZE = {"cpu": 2048, "gpu": 8192}
# Rows of `packed` and `padded` cases hold sequences of 16 tokens up to the length, each length as often.
SHORTEST = 16
MAX_SEQUENCES = 8

Steps = Callable[[int], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """What is measured.

    Attributes:
        size: one of SIZES.
        length: T, tokens of a row.
        batch: rows.
        precision: `float32` or `bfloat16`; the weights and the optimizer are float32 in both.
        mode: `train`, or `infer`: the logits of masked tokens and next sentences.
        rows: `full` (one row in ten ends early, as the original's data), `padded` (a sequence of any length a row), or
            `packed` (such sequences, as many as a row has room for).
    """

    size: str
    length: int
    batch: int
    precision: str = "float32"
    mode: str = "train"
    rows: str = "full"

    @property
    def predictions(self) -> int:
        """P, masked tokens that a row has room for: 15 % rounded up, as the original's 20 at 128 tokens."""
        return 20 * self.length // 128

    def inputs(self) -> dict[str, np.ndarray]:
        """The batch: features as `bert_keras.features` names them."""
        rng = np.random.default_rng(0)
        if self.rows != "packed":
            return self._sequences(self.batch, rng)
        from bert_keras.features import ExampleLayout
        from components.pretrain_example_gen.packing import pack_features, pack_sequences

        alone = self._sequences(self.batch * MAX_SEQUENCES, rng)
        layout = ExampleLayout("mlm_nsp", self.length, self.predictions, MAX_SEQUENCES, "static")
        rows = pack_sequences(alone["input_mask"].sum(1), self.length, MAX_SEQUENCES)
        rows = rows[rng.permutation(len(rows))[: self.batch]]
        order = rows[rows >= 0]
        return pack_features({k: v[order] for k, v in alone.items()}, (rows >= 0).sum(1), layout, pad_id=0)

    def _sequences(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        T, P = self.length, self.predictions
        lengths = rng.integers(SHORTEST, T + 1, count)
        if self.rows == "full":
            lengths = np.where(rng.random(count) < 0.1, lengths, T)
        is_token = np.arange(T) < lengths[:, None]
        masked = np.sort(np.argsort(np.where(is_token, rng.random((count, T)), 2.0), axis=1)[:, :P], axis=1)
        # Masked tokens first, in order; of a short row, what is left of P is padding.
        is_masked = np.arange(P) < np.maximum(1, lengths * P // T)[:, None]
        return {
            "input_ids": np.where(is_token, rng.integers(1000, VOCAB_SIZE, (count, T)), 0).astype(np.int32),
            "input_mask": is_token.astype(np.int32),
            "segment_ids": (is_token & (np.arange(T) >= lengths[:, None] // 2)).astype(np.int32),
            "masked_lm_positions": np.where(is_masked, masked, 0).astype(np.int32),
            "masked_lm_ids": np.where(is_masked, rng.integers(1000, VOCAB_SIZE, (count, P)), 0).astype(np.int32),
            "masked_lm_weights": is_masked.astype(np.float32),
            "next_sentence_labels": rng.integers(0, 2, (count, 1)).astype(np.int32),
        }

    def step_flops(self) -> float:
        """Multiplications and additions of the matrix products of a step: the least that it can take.

        Two a weight and token forwards, four backwards; the products of queries, keys and values; the vocabulary's for
        the predictions alone. No embedding look-up, layer normalisation, dropout or optimizer.
        """
        layers, width = SIZES[self.size]
        tokens, predictions = self.batch * self.length, self.batch * self.predictions
        encoder = layers * tokens * (12 * width**2 + 2 * self.length * width)
        heads = predictions * (width**2 + VOCAB_SIZE * width) + self.batch * width**2
        return (6 if self.mode == "train" else 2) * float(encoder + heads)


# ---------------------------------------------------------------------- bert-tfx


def bert_tfx(case: Case, xla: bool = False) -> Steps:
    """The product's own training loop, but for reading files; inference through a `tf.function`."""
    import keras

    from bert_keras.config import SecondPhase, TrainingConfig
    from bert_keras.features import ExampleSpec
    from bert_keras.heads import BertForPreTraining
    from bert_keras.phases import ExampleSet, phases_of
    from bert_keras.training_loop import TrainingLoop

    if keras.backend.backend() == "jax":
        return _jax_steps(case, *_bert_tfx_on_jax(case))
    import tensorflow as tf

    inputs = {name: tf.constant(value) for name, value in case.inputs().items()}
    precision = "mixed_bfloat16" if case.precision == "bfloat16" else "float32"
    if case.mode == "infer":
        with _keras_policy(precision):
            model = BertForPreTraining(_bert_config(case))
            model.build()
        # Without the backbone's other outputs: what is computed is the same.
        predict = tf.function(lambda x: {k: v for k, v in model(x).items() if "logits" in k}, jit_compile=xla)
        return _repeat(lambda: predict(inputs)["nsp_logits"].numpy())
    spec = ExampleSpec(case.length, case.predictions, VOCAB_SIZE, "", case.batch, case.batch)
    config = TrainingConfig(train_batch_size=case.batch, mixed_precision=precision, jit_compile=xla)
    phases = phases_of(config, SecondPhase(), [ExampleSet(spec, [], [])])
    loop = TrainingLoop(_bert_config(case), config, phases, "")
    batches = iter(tf.data.Dataset.from_tensors(inputs).repeat())
    return lambda count: loop._train_steps(batches, count)[0]["mlm_nll"]


def _bert_config(case: Case):
    from bert_keras.config import BertConfig

    return BertConfig.size(*SIZES[case.size])


def _bert_tfx_on_jax(case: Case):
    from bert_keras.config import TrainingConfig
    from bert_keras.heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import example_sums
    from bert_keras.optimizer import create_optimizer

    with _keras_policy("mixed_bfloat16" if case.precision == "bfloat16" else "float32"):
        model = BertForPreTraining(_bert_config(case))
        model.build()
    optimizer = create_optimizer(TrainingConfig(), SIZES[case.size][0])

    def loss(outputs, inputs):
        sums = {name: value.sum() for name, value in example_sums(outputs, inputs).items()}
        return sums["mlm_nll"] / sums["mlm_weight"] + sums["nsp_nll"] / sums["nsp_weight"]

    return model, optimizer, case.inputs(), loss


def _jax_steps(case: Case, model, optimizer, inputs, loss) -> Steps:
    """Steps of a Keras model on JAX, compiled, its buffers donated."""
    import jax
    import jax.numpy as jnp

    inputs = jax.device_put(inputs)
    trained, others = ([v.value for v in x] for x in (model.trainable_variables, model.non_trainable_variables))
    if case.mode == "infer":
        predict = jax.jit(lambda *state: [v for k, v in model.stateless_call(*state)[0].items() if "logits" in k])
        return _repeat(lambda: jax.block_until_ready(predict(trained, others, inputs)))
    optimizer.build(model.trainable_variables)

    def forward(trained, others, inputs):
        outputs, others = model.stateless_call(trained, others, inputs, training=True)
        return loss(outputs, inputs), others

    def step(trained, others, slots, inputs):
        (value, others), gradients = jax.value_and_grad(forward, has_aux=True)(trained, others, inputs)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
        gradients = [gradient * jnp.minimum(1.0, 1.0 / norm) for gradient in gradients]
        trained, slots = optimizer.stateless_apply(slots, gradients, trained)
        return value, (trained, others, slots)

    compiled = jax.jit(step, donate_argnums=(0, 1, 2))
    state = [(trained, others, [v.value for v in optimizer.variables])]

    def run(count: int):
        for _ in range(count):
            value, state[0] = compiled(*state[0], inputs)
        return float(value)

    return run


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

        return _jax_steps(case, _OfFeatures(model), adam, (features, labels, weights), loss)
    import tensorflow as tf

    if case.mode == "infer":
        constants = {name: tf.constant(value) for name, value in features.items()}
        predict = tf.function(lambda x: model(x, training=False), jit_compile=xla)
        return _repeat(lambda: predict(constants)["nsp"].numpy())
    model.compile(optimizer=adam, loss=cross_entropy, jit_compile=xla)
    model.make_train_function()
    batches = iter(tf.data.Dataset.from_tensors((features, labels, weights)).repeat())
    return _repeat(lambda: float(model.train_function(batches)["loss"]))


class _OfFeatures:
    """A model whose call takes features, of batches of (features, labels, weights)."""

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
    with _keras_policy("mixed_bfloat16" if case.precision == "bfloat16" else "float32"):
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

        return _repeat(infer)
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

    return _repeat(train)


# ---------------------------------------------------------------------- the machine


def matmul(case: Case) -> Steps:
    """A product of two square matrices: what the machine multiplies, by this framework."""
    import keras

    dtype = case.precision
    size = MATMUL_SIZE["cpu" if not _has_gpu() else "gpu"]
    values = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    if keras.backend.backend() == "jax":
        import jax
        import jax.numpy as jnp

        a = jnp.asarray(values, dtype)
        product = jax.jit(lambda x: x @ a)
        return _repeat(lambda: jax.block_until_ready(product(a)))
    import tensorflow as tf

    a = tf.cast(tf.constant(values), dtype)
    product = tf.function(lambda x: tf.reduce_sum(x @ a))
    return _repeat(lambda: product(a).numpy())


def _has_gpu() -> bool:
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "gpu"
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def flops(contestant: str, case: Case) -> float:
    """Of a step of a contestant, the least it can take."""
    if contestant == "matmul":
        return 2.0 * MATMUL_SIZE["gpu" if _has_gpu() else "cpu"] ** 3
    return case.step_flops()


CONTESTANTS: dict[str, Callable[[Case], Steps]] = {
    "bert-tfx": bert_tfx,
    "bert-tfx, XLA": lambda case: bert_tfx(case, xla=True),
    "keras-hub": keras_hub,
    "keras-hub, XLA": lambda case: keras_hub(case, xla=True),
    "transformers": transformers,
    "transformers, gathered": lambda case: transformers(case, gathered=True),
    "transformers, compiled": lambda case: transformers(case, compiled=True),
    "transformers, gathered, compiled": lambda case: transformers(case, gathered=True, compiled=True),
    "matmul": matmul,
}


class _keras_policy:
    """Keras' dtype policy, within a block."""

    def __init__(self, name: str):
        self._name = name

    def __enter__(self):
        import keras

        keras.mixed_precision.set_dtype_policy(self._name)

    def __exit__(self, *_):
        import keras

        keras.mixed_precision.set_dtype_policy("float32")


def _repeat(step: Callable[[], Any]) -> Steps:
    def run(count: int):
        for _ in range(count):
            value = step()
        return value

    return run


def _used() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def _peak_bytes() -> int:
    """Most memory this process had: of the device, if it is one of JAX; else resident."""
    if os.environ.get("KERAS_BACKEND") == "jax":
        import jax

        if jax.default_backend() == "gpu":
            return jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(contestant: str, case: Case) -> None:
    """Answers each line of the input, a number of steps, with what they took; first, with what a step is."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    run = CONTESTANTS[contestant](case)
    run(1), run(2)
    inputs = case.inputs()
    about = {
        "flops": flops(contestant, case),
        "tokens": case.batch * case.length,
        "useful_tokens": int(inputs["input_mask"].sum()),
    }
    print(json.dumps(about), file=answers)
    for line in sys.stdin:
        before = _used()
        value = run(int(line))
        wall, cpu = (after - then for after, then in zip(_used(), before, strict=True))
        answer = {"wall": wall, "cpu": cpu, "peak_bytes": _peak_bytes()}
        print(json.dumps(answer | ({"value": value} if isinstance(value, float) else {})), file=answers)


if __name__ == "__main__":
    serve(sys.argv[1], Case(**json.loads(sys.argv[2])))
