"""Speed of the product's training step: useful tokens a second, and the share of the machine's rate.

    .venv/bin/python -m benchmarks.model.bench_model --size mini --length 128
    .venv/bin/python -m benchmarks.model.bench_model --length 512 --rows padded --rows packed --precision bfloat16
    KERAS_BACKEND=jax XLA_PYTHON_CLIENT_PREALLOCATE=false python -m benchmarks.model.bench_model --size base --batch 64

Variants take turns in one process, so that disturbances of the machine affect all of them. Printed are medians over the
rounds, without compilation and warm-up. CPU seconds are those of all threads: on a busy machine only they are
comparable. The floor of a step is its matrix products at the rate of a large one, which is measured in each round; the
share is the floor's part of the step. With KERAS_BACKEND=jax the product trains on JAX, on its first device.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

if TYPE_CHECKING:
    from bert_keras.models.config import BertConfig
    from bert_keras.training.backends.devices import TrainSteps

Steps = Callable[[int], Any]  # runs a number of steps

# Layers, width; `modern` is `modern_base`'s.
SIZES = {"tiny": (2, 128), "mini": (4, 256), "base": (12, 768), "large": (24, 1024)}
SIZES |= {"modern_tiny": (3, 128), "modern": (22, 768)}
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

        layers, width = SIZES[self.size]
        if self.size.startswith("modern"):
            shape = {"hidden_size": width, "num_attention_heads": width // 64, "intermediate_size": width * 3 // 2}
            return dataclasses.replace(modern_base().model, vocab_size=VOCAB_SIZE, num_hidden_layers=layers, **shape)
        return BertConfig.size(
            layers,
            width,
            max_position_embeddings=max(512, self.length),
            attention_probs_dropout_prob=self.attention_dropout,
        )

    def flops(self) -> float:
        """A lower bound: the matrix products of a step."""
        from bert_keras.training.flops import training_flops

        return self.batch * training_flops(self.config(), self.length, self.predictions)


class OneBatch:
    """One batch again and again: `bert_keras.training.phases.Examples`, as far as a feed needs it."""

    def __init__(self, batch: dict[str, np.ndarray]):
        self.batch = batch
        self.row_shapes = {name: (values.shape[1:], values.dtype) for name, values in batch.items()}

    def train_batches(self, **_: int) -> Iterator[dict[str, np.ndarray]]:
        return itertools.repeat(self.batch)


def product_steps(case: Case, **settings: Any) -> tuple[TrainSteps, Iterator[Any]]:
    """The product's own compiled steps on Keras' backend, and batches for them; `settings` are of `TrainingConfig`."""
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import OBJECTIVE
    from bert_keras.training.config import TrainingConfig
    from bert_keras.training.loop import TrainingLoop
    from bert_keras.training.phases import Phase

    config = TrainingConfig(
        train_batch_size=case.batch,
        mixed_precision=case.policy,
        jit_compile=case.variant == "xla",
        strategy="mirrored" if case.variant == "mirrored" else "one_device",
        backend="jax" if ON_JAX else "tensorflow",
        **settings,
    )

    def create_model():
        model = BertForPreTraining(case.config())
        model.build()
        return model

    phase = Phase(OneBatch(case.inputs()), 0, config.num_train_steps, case.batch, 0)  # type: ignore[arg-type]
    steps = TrainingLoop(create_model, OBJECTIVE, config, [phase], "no folder").steps
    return steps, steps.feed(phase, 0)


def run_of(case: Case) -> Steps:
    steps, batches = product_steps(case)
    return lambda count: steps(batches, count)[0]["mlm_nll"]


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
    size: Annotated[str, typer.Option(help="tiny, mini, base, large, modern.")] = "mini",
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
    contestants = [run_of(case) for case in cases]
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
