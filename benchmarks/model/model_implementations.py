"""Contestants of `bench_model.py` and `bench_training.py`: BERT for pre-training, each in a separate process.

    python benchmarks/model/model_implementations.py CONTESTANT CASE        (CASE: the fields of `Case`, as JSON)

It builds the model, warms up, and then runs the number of steps in each input line; it answers with a line of JSON.
CPU seconds are those of all threads of the process during the steps only.

All contestants of a case have the same batch and work: a step is the forward pass with dropout, the loss of masked
tokens and next sentences, the backward pass, clipping by the global norm and an Adam step with decoupled decay.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable

import numpy as np

from benchmarks.model.model_config import MATMUL_SIZE, SIZES, Case
from benchmarks.model.model_peers import keras_hub, transformers
from benchmarks.model.model_steps import Steps, jax_steps, keras_policy, repeat

# ---------------------------------------------------------------------- bert-tfx


def bert_tfx(case: Case, xla: bool = False, devices: int = 1) -> Steps:
    """The product's own training step, compiled and distributed as in its loop; inference through a `tf.function`."""
    import keras

    if keras.backend.backend() == "jax":
        return jax_steps(case, *_bert_tfx_on_jax(case))
    import tensorflow as tf

    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import OBJECTIVE
    from bert_keras.training.config import TrainingConfig
    from bert_keras.training.optimizer import create_optimizer
    from bert_keras.training.step import TrainSteps
    from bert_keras.training.strategy import create_strategy

    if devices > 1:
        halves = [tf.config.LogicalDeviceConfiguration()] * devices
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], halves)
    precision = "mixed_bfloat16" if case.precision == "bfloat16" else "float32"
    config = TrainingConfig(
        train_batch_size=case.batch,
        mixed_precision=precision,
        jit_compile=xla,
        strategy="mirrored" if devices > 1 else "one_device",
    )
    strategy = create_strategy(config)
    with strategy.scope(), keras_policy(precision):
        model = BertForPreTraining(case.config())
        model.build()
    inputs = case.inputs()
    if case.mode == "infer":
        # Without the backbone's other outputs; the computation is the same.
        predict = tf.function(lambda x: {k: v for k, v in model(x).items() if "logits" in k}, jit_compile=xla)
        constants = {name: tf.constant(value) for name, value in inputs.items()}
        return repeat(lambda: predict(constants)["nsp_logits"].numpy())
    with strategy.scope():
        optimizer = create_optimizer(config, model.config.num_hidden_layers)
        optimizer.build(model.trainable_variables)
        step = tf.Variable(0, dtype=tf.int64)
    steps = TrainSteps(model, optimizer, OBJECTIVE, step, strategy, config)
    # Each device its part of the rows, as the loop has it.
    parts = {name: value.reshape(devices, -1, *value.shape[1:]) for name, value in inputs.items()}
    dataset = tf.data.Dataset.from_tensor_slices(parts).repeat()
    iterator = iter(strategy.distribute_datasets_from_function(lambda context: dataset))
    return lambda count: steps(iterator, count)[0]["mlm_nll"]


def _bert_tfx_on_jax(case: Case):
    from bert_keras.models.pretraining_heads import BertForPreTraining
    from bert_keras.objectives.mlm_nsp import OBJECTIVE
    from bert_keras.training.config import TrainingConfig
    from bert_keras.training.optimizer import create_optimizer

    with keras_policy("mixed_bfloat16" if case.precision == "bfloat16" else "float32"):
        model = BertForPreTraining(case.config())
        model.build()
    optimizer = create_optimizer(TrainingConfig(), SIZES[case.size][0])

    def loss(outputs, inputs):
        sums = {name: value.sum() for name, value in OBJECTIVE.example_sums(outputs, inputs).items()}
        return OBJECTIVE.loss(sums, OBJECTIVE.totals(inputs))

    return model, optimizer, case.inputs(), loss


# ---------------------------------------------------------------------- the machine


def matmul(case: Case) -> Steps:
    """A product of two square matrices: the machine's rate with this framework."""
    import keras

    dtype = case.precision
    size = MATMUL_SIZE["cpu" if not _has_gpu() else "gpu"]
    values = np.random.default_rng(0).normal(size=(size, size)).astype(np.float32)
    if keras.backend.backend() == "jax":
        import jax
        import jax.numpy as jnp

        a = jnp.asarray(values, dtype)
        product = jax.jit(lambda x: x @ a)
        return repeat(lambda: jax.block_until_ready(product(a)))
    import tensorflow as tf

    a = tf.cast(tf.constant(values), dtype)
    product = tf.function(lambda x: tf.reduce_sum(x @ a))
    return repeat(lambda: product(a).numpy())


def _has_gpu() -> bool:
    import keras

    if keras.backend.backend() == "jax":
        import jax

        return jax.default_backend() == "gpu"
    import tensorflow as tf

    return bool(tf.config.list_physical_devices("GPU"))


def flops(contestant: str, case: Case) -> float:
    """Minimum FLOPs of a contestant's step."""
    if contestant == "matmul":
        return 2.0 * MATMUL_SIZE["gpu" if _has_gpu() else "cpu"] ** 3
    return case.step_flops()


CONTESTANTS: dict[str, Callable[[Case], Steps]] = {
    "bert-tfx": bert_tfx,
    "bert-tfx, XLA": lambda case: bert_tfx(case, xla=True),
    "bert-tfx, mirrored": lambda case: bert_tfx(case, devices=2),
    "keras-hub": keras_hub,
    "keras-hub, XLA": lambda case: keras_hub(case, xla=True),
    "transformers": transformers,
    "transformers, gathered": lambda case: transformers(case, gathered=True),
    "transformers, compiled": lambda case: transformers(case, compiled=True),
    "transformers, gathered, compiled": lambda case: transformers(case, gathered=True, compiled=True),
    "matmul": matmul,
}


def _used() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return time.perf_counter(), used.ru_utime + used.ru_stime


def _peak_bytes() -> int:
    """Peak memory of this process: the device's with JAX on a device, else resident memory."""
    if os.environ.get("KERAS_BACKEND") == "jax":
        import jax

        if jax.default_backend() == "gpu":
            return jax.devices()[0].memory_stats()["peak_bytes_in_use"]
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def serve(contestant: str, case: Case) -> None:
    """Answer each input line, a list of a number of steps, with their time; first print a description of a step."""
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
        value = run(*json.loads(line))
        wall, cpu = (after - then for after, then in zip(_used(), before, strict=True))
        answer = {"wall": wall, "cpu": cpu, "peak_bytes": _peak_bytes()}
        print(json.dumps(answer | ({"value": value} if isinstance(value, float) else {})), file=answers)


if __name__ == "__main__":
    serve(sys.argv[1], Case(**json.loads(sys.argv[2])))
