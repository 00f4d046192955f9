"""Speed of the product's training step: useful tokens a second, and the share of the machine's rate.

    .venv/bin/python -m benchmarks.model.bench_model --size mini --length 128
    .venv/bin/python -m benchmarks.model.bench_model --length 512 --rows padded --rows packed --precision bfloat16
    KERAS_BACKEND=jax XLA_PYTHON_CLIENT_PREALLOCATE=false python -m benchmarks.model.bench_model --size base --batch 64

Variants take turns in one process, so that disturbances of the machine affect all of them. Printed are medians over the
rounds, without compilation and warm-up. CPU seconds are those of all threads: on a busy machine only they are
comparable. The floor of a step is its matrix products at the rate of a large one, which is measured in each round; the
share is the floor's part of the step. With KERAS_BACKEND=jax the step is compiled by JAX and runs on its device.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import resource
import statistics
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import typer

if TYPE_CHECKING:
    from bert_keras.models.config import BertConfig

Steps = Callable[[int], Any]  # runs a number of steps

# Layers, width; modern: `modern_base`'s.
SIZES = {"mini": (4, 256), "base": (12, 768), "large": (24, 1024), "modern": (22, 768)}
VOCAB_SIZE = 30_522
# Rows of `packed` and `padded` cases hold sequences of 16 tokens up to the length, all lengths equally often.
SHORTEST, MAX_SEQUENCES = 16, 8
ON_JAX = os.environ.get("KERAS_BACKEND") == "jax"


@dataclasses.dataclass(frozen=True)
class Case:
    """One case to measure.

    Attributes:
        size: one of SIZES.
        length: T, tokens of a row.
        batch: rows.
        precision: `float32` or `bfloat16`; the weights and the optimizer are float32 in both.
        rows: `full` (one row in ten ends early, as in the original's data), `padded` (one sequence of any length per
            row), or `packed` (as many such sequences as fit in a row).
        variant: `plain`, `xla` (`training.jit_compile`), or `mirrored` over two logical devices.
        attention_dropout: of the attention probabilities; with 0, JAX has one kernel for attention on a GPU.
    """

    size: str
    length: int
    batch: int
    precision: str = "float32"
    rows: str = "full"
    variant: str = "plain"
    attention_dropout: float = 0.1

    @property
    def predictions(self) -> int:
        """P, masked tokens per row: 15 % rounded up, as the original's 20 at 128 tokens."""
        return 20 * self.length // 128

    @property
    def policy(self) -> str:
        """Keras' dtype policy."""
        return "mixed_bfloat16" if self.precision == "bfloat16" else "float32"

    def inputs(self) -> dict[str, np.ndarray]:
        """The batch: features in the format of `bert_keras.data.example_format`."""
        rng = np.random.default_rng(0)
        if self.rows != "packed":
            return self._sequences(self.batch, rng)
        from bert_keras.data.example_format import ExampleLayout
        from components.pretrain_example_gen.packing import pack_features, pack_sequences

        alone = self._sequences(self.batch * MAX_SEQUENCES, rng)
        layout = ExampleLayout("mlm_nsp", self.length, self.predictions, MAX_SEQUENCES, "static")
        rows = pack_sequences(alone["input_mask"].sum(1), self.length, MAX_SEQUENCES)
        rows = rows[rng.permutation(len(rows))[: self.batch]]
        order = rows[rows >= 0]
        return pack_features({k: v[order] for k, v in alone.items()}, (rows >= 0).sum(1), layout, pad_id=0)

    def _sequences(self, count: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
        T, P = self.length, self.predictions
        lengths = rng.permutation(np.linspace(SHORTEST, T, count).round().astype(int))
        if self.rows == "full":
            lengths = np.where(rng.random(count) < 0.1, lengths, T)
        is_token = np.arange(T) < lengths[:, None]
        masked = np.sort(np.argsort(np.where(is_token, rng.random((count, T)), 2.0), axis=1)[:, :P], axis=1)
        # Masked tokens first, in order, then padding up to P.
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

    def config(self) -> BertConfig:
        """The encoder: BERT's, or `modern_base`'s with the same vocabulary."""
        from bert_keras.models.config import BertConfig
        from pipeline.recipes.relatives import modern_base

        if self.size == "modern":
            return dataclasses.replace(modern_base().model, vocab_size=VOCAB_SIZE)
        return BertConfig.size(
            *SIZES[self.size],
            max_position_embeddings=max(512, self.length),
            attention_probs_dropout_prob=self.attention_dropout,
        )

    def flops(self) -> float:
        """A lower bound: the matrix products of a step."""
        from bert_keras.training.flops import training_flops

        return self.batch * training_flops(self.config(), self.length, self.predictions)


def tensorflow_steps(case: Case) -> Steps:
    """The product's own training step, compiled and distributed as in its loop."""
    import keras
    import tensorflow as tf
    from bert_keras.training.step import TrainSteps
    from bert_keras.training.strategy import create_strategy

    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import OBJECTIVE
    from bert_keras.training.config import TrainingConfig
    from bert_keras.training.optimizer import create_optimizer

    xla, devices = case.variant == "xla", 2 if case.variant == "mirrored" else 1
    strategy_name: Literal["mirrored", "one_device"] = "mirrored" if devices > 1 else "one_device"
    config = TrainingConfig(
        train_batch_size=case.batch, mixed_precision=case.policy, jit_compile=xla, strategy=strategy_name
    )
    strategy = create_strategy(config)
    keras.mixed_precision.set_dtype_policy(case.policy)
    with strategy.scope():
        model = BertForPreTraining(case.config())
        model.build()
    inputs = case.inputs()
    with strategy.scope():
        optimizer = create_optimizer(config, model.config.num_hidden_layers)
        optimizer.build(model.trainable_variables)
        step = tf.Variable(0, dtype=tf.int64)
    steps = TrainSteps(model, optimizer, OBJECTIVE, step, strategy, config)
    # Each device gets its part of the rows, as in the loop.
    parts = {name: value.reshape(devices, -1, *value.shape[1:]) for name, value in inputs.items()}
    dataset = tf.data.Dataset.from_tensor_slices(parts).repeat()
    iterator = iter(strategy.distribute_datasets_from_function(lambda context: dataset))
    return lambda count: steps(iterator, count)[0]["mlm_nll"]


def jax_steps(case: Case) -> Steps:
    """The product's model, objective and optimizer in a step that JAX compiles, its buffers donated."""
    import jax
    import keras

    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import OBJECTIVE
    from bert_keras.training.config import TrainingConfig
    from bert_keras.training.optimizer import create_optimizer

    keras.mixed_precision.set_dtype_policy(case.policy)
    model = BertForPreTraining(case.config())
    model.build()
    inputs = jax.device_put(case.inputs())
    trained, others = ([v.value for v in x] for x in (model.trainable_variables, model.non_trainable_variables))

    def loss(outputs, batch):
        sums = {name: value.sum() for name, value in OBJECTIVE.example_sums(outputs, batch).items()}
        return OBJECTIVE.loss(sums, OBJECTIVE.totals(batch))

    optimizer = create_optimizer(TrainingConfig(), case.config().num_hidden_layers)
    optimizer.build(model.trainable_variables)
    compiled = jax.jit(jax_train_step(model, optimizer, loss), donate_argnums=(0, 1, 2))
    state = [(trained, others, [v.value for v in optimizer.variables])]

    def run(count: int):
        for _ in range(count):
            value, state[0] = compiled(*state[0], inputs)
        return float(value)

    return run


def jax_train_step(model, optimizer, loss, clip_norm: float = 1.0) -> Callable:
    """(trained, other, optimizer's variables, inputs) -> (loss, the three after a step), for JAX to compile."""
    import jax
    import jax.numpy as jnp

    def forward(trained, others, inputs):
        outputs, others = model.stateless_call(trained, others, inputs, training=True)
        return loss(outputs, inputs), others

    def step(trained, others, slots, inputs):
        (value, others), gradients = jax.value_and_grad(forward, has_aux=True)(trained, others, inputs)
        norm = jnp.sqrt(sum(jnp.sum(jnp.square(gradient)) for gradient in gradients))
        gradients = [gradient * jnp.minimum(1.0, clip_norm / norm) for gradient in gradients]
        trained, slots = optimizer.stateless_apply(slots, gradients, trained)
        return value, (trained, others, slots)

    return step


def matrix_products(precision: str) -> tuple[Steps, float]:
    """Products of two square matrices, the machine's rate with this framework, and the FLOPs of one."""
    if ON_JAX:
        import jax
        import jax.numpy as jnp

        size = 8192 if jax.default_backend() == "gpu" else 2048
        matrix = jnp.ones((size, size), precision)
        product = jax.jit(lambda x: x @ x)
        return repeat(lambda: jax.block_until_ready(product(matrix))), 2.0 * size**3
    import tensorflow as tf

    size = 8192 if tf.config.list_physical_devices("GPU") else 2048
    ones = tf.ones((size, size), precision)
    multiply = tf.function(lambda x: tf.reduce_sum(x @ x))
    return repeat(lambda: multiply(ones).numpy()), 2.0 * size**3


def repeat(step: Callable[[], Any]) -> Steps:
    def run(count: int):
        for _ in range(count):
            value = step()
        return value

    return run


def seconds_a_step(run: Steps, count: int) -> tuple[float, float]:
    """CPU and wall-clock seconds of a step."""
    wall, cpu = time.perf_counter(), time.process_time()
    run(count)
    return (time.process_time() - cpu) / count, (time.perf_counter() - wall) / count


def main(
    size: Annotated[str, typer.Option(help="mini, base, large, modern.")] = "mini",
    length: Annotated[int, typer.Option(help="Tokens of a row.")] = 128,
    batch: Annotated[int, typer.Option(help="Rows.")] = 32,
    precision: Annotated[list[str], typer.Option(help="float32, bfloat16.")] = ["float32"],  # noqa: B006
    rows: Annotated[list[str], typer.Option(help="full, padded, packed.")] = ["full"],  # noqa: B006
    variant: Annotated[list[str], typer.Option(help="plain, xla, mirrored; on JAX plain.")] = ["plain"],  # noqa: B006
    attention_dropout: Annotated[list[float], typer.Option(help="Of the attention.")] = [0.1],  # noqa: B006
    rounds: Annotated[int, typer.Option(help="Turns of each variant.")] = 5,
    seconds: Annotated[float, typer.Option(help="Seconds of a turn, about.")] = 2.0,
) -> None:
    """Measure every combination; print a table in Markdown."""
    if "mirrored" in variant and not ON_JAX:
        import tensorflow as tf

        halves = [tf.config.LogicalDeviceConfiguration()] * 2
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    combinations = itertools.product(precision, rows, variant, attention_dropout)
    cases = [Case(size, length, batch, p, r, v, dropout) for p, r, v, dropout in combinations]
    contestants = [(jax_steps if ON_JAX else tensorflow_steps)(case) for case in cases]
    machines = {name: matrix_products(name) for name in precision}
    runs = [*contestants, *(run for run, _ in machines.values())]
    for run in runs:
        run(1), run(2)  # compiles
    counts = [max(1, round(seconds / max(seconds_a_step(run, 1)))) for run in runs]
    turns = [[seconds_a_step(run, count) for run, count in zip(runs, counts, strict=True)] for _ in range(rounds)]
    medians = [
        [statistics.median(values) for values in zip(*of_run, strict=True)] for of_run in zip(*turns, strict=True)
    ]
    rates = {
        name: [flops / value for value in medians[len(cases) + place]]
        for place, (name, (_, flops)) in enumerate(machines.items())
    }
    print("| case | ms CPU | ms wall | useful tokens a CPU second | a second | share of the rate, CPU | wall |")
    print("|---" * 7 + "|")
    for case, (cpu, wall) in zip(cases, medians, strict=False):
        useful = int(case.inputs()["input_mask"].sum())
        shares = [case.flops() / rate / value for rate, value in zip(rates[case.precision], (cpu, wall), strict=True)]
        name = f"{size}, {batch} {case.rows} rows of {length}, {case.precision}, {case.variant}"
        name += "" if case.attention_dropout else ", no attention dropout"
        print(
            f"| {name} | {1000 * cpu:.0f} | {1000 * wall:.0f} | {useful / cpu:,.0f} | {useful / wall:,.0f} | "
            f"{shares[0]:.0%} | {shares[1]:.0%} |"
        )
    print(f"\nresident at most: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


if __name__ == "__main__":
    typer.run(main)
