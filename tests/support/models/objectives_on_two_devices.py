"""One step of gradient descent on each objective, on one device and on two, in a separate process.

python -m tests.support.models.objectives_on_two_devices OUT OBJECTIVE...

KERAS_BACKEND chooses the backend. Several MirroredStrategies in a process take each other's messages, so all objectives
here share one. Writes to OUT what the step took off each weight, by objective and devices, and what each device's half
of the batch divides by; for an objective whose rows depend on each other also in parts of the batch.
"""

import dataclasses
import os
import sys
from unittest import mock

from tests.support.processes import FAST_TO_COMPILE

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count=2 {FAST_TO_COMPILE}"

import keras
import numpy as np

from bert_keras.data.array_batches import TEACHER_OUTPUTS, ArrayExamples
from bert_keras.models.bilm import BiLM
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.left_to_right import GptBert, LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.models.spanbert import SpanBertForPreTraining
from bert_keras.models.task_models import BertForSentenceSimilarity
from bert_keras.objectives import electra, gpt_bert, mlm, mlm_nsp, next_token, span_boundary
from bert_keras.objectives.distillation import Taught, distilled
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.tasks import objectives
from bert_keras.training.backends.opening import open_devices
from bert_keras.training.config import SecondPhase
from bert_keras.training.phases import phases_of
from tests.support.models import tiny_encoders
from tests.support.models.every_model import best_guess, characters, choices, features, packed
from tests.support.models.small_training import RUN, Descent, built
from tests.support.models.tiny_encoders import SHAPE, roberta_config

TINY, LEFT_TO_RIGHT, BILM = (
    dataclasses.replace(config, num_hidden_layers=1)
    for config in (tiny_encoders.TINY, tiny_encoders.LEFT_TO_RIGHT, tiny_encoders.BILM)
)
ELECTRA = ElectraConfig(TINY, 12, 1 / 2)

LENGTHS = (12, 12, 12, 11, 4, 5, 4, 7)
PACKED = ((5, 4), (7, 0), (6, 6), (4, 0), (8, 4), (3, 0))
# Of the order of the examples: one that puts the long ones on one device.
SEED = 133
CASES = {
    "mlm_nsp": (lambda: BertForPreTraining(TINY), mlm_nsp.OBJECTIVE, features(LENGTHS)),
    "mlm_nsp, packed": (lambda: BertForPreTraining(TINY), mlm_nsp.OBJECTIVE, packed(PACKED)),
    "mlm": (lambda: RobertaForMaskedLM(roberta_config(1, 64, **SHAPE)), mlm.OBJECTIVE, features(LENGTHS, segments=1)),
    "electra": (lambda: ElectraForPreTraining(ELECTRA), electra.OBJECTIVE, features(LENGTHS)),
    "span_boundary": (
        lambda: SpanBertForPreTraining(TINY, span_boundary.MAX_PAIR_TARGETS),
        span_boundary.OBJECTIVE,
        features(LENGTHS, segments=1),
    ),
    "left_to_right": (lambda: LeftToRightLM(LEFT_TO_RIGHT), next_token.OBJECTIVE, features(LENGTHS, segments=1)),
    "gpt_bert": (lambda: GptBert(TINY), gpt_bert.OBJECTIVE, features(LENGTHS, segments=1)),
    # Its negatives are the other rows: those of the other device too; so the teacher's vectors are of all rows.
    "similarity": (
        lambda: BertForSentenceSimilarity(TINY, "mean"),
        distilled(objectives.matryoshka([4]), DistillationSettings()),
        {
            **choices(LENGTHS),
            "weights": np.linspace(0.1, 1, len(LENGTHS), dtype="float32") ** 2,
            TEACHER_OUTPUTS: np.random.default_rng(3).normal(size=(len(LENGTHS), 3, TINY.hidden_size)).astype("f4"),
        },
    ),
    "gpt_bert, taught": (
        lambda: Taught(built(GptBert, TINY), built(BertForPreTraining, TINY, seed=1), heads=4),
        distilled(gpt_bert.OBJECTIVE, DistillationSettings(relations_weight=0.5)),
        features(LENGTHS, segments=1),
    ),
    "bidirectional": (
        lambda: BiLM(BILM),
        next_token.BIDIRECTIONAL_OBJECTIVE,
        features(LENGTHS, segments=1),
    ),
}


def create_model(make, used_pooler):
    """With random weights, large enough that all of them matter."""
    model, rng = make(), np.random.default_rng(0)
    if not model.built:
        model.build()
    student = getattr(model, "student", model)
    if not used_pooler and hasattr(student, "backbone"):
        student.backbone.pooler.trainable = False
        if hasattr(student, "nsp_head"):
            student.nsp_head.trainable = False
    around = [float(v.path.endswith("gamma")) for v in model.weights]
    values = [one + rng.normal(0, 0.2, v.shape) for one, v in zip(around, model.weights, strict=True)]
    model.set_weights([characters(v) if v.dtype == "int32" else x for v, x in zip(model.weights, values, strict=True)])
    return model


def main(out, *names):
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
        )
        # Nothing here is computed often enough to pay for it.
        tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    configs = {
        count: dataclasses.replace(RUN, strategy=strategy, clip_norm=1e9, backend=backend)
        for count, strategy in ((1, "one_device"), (2, "mirrored"))
    }
    # Devices, parts of a batch on each, and the name of that.
    whole, in_parts = [(1, 1, "1"), (2, 1, "2")], [(1, 4, "1 in 4"), (2, 2, "2 in 4")]
    opened = {count: open_devices(config) for count, config in configs.items()}
    assert opened[2].replicas == 2
    numbers = {}
    for name in names:
        make, objective, arrays = CASES[name]
        print(name, flush=True)
        rows = len(arrays["input_ids"])
        examples = ArrayExamples(arrays, arrays)
        (phase,) = phases_of(dataclasses.replace(RUN, train_batch_size=rows), SecondPhase(), [examples])
        for count, parts, run in [*whole, *in_parts * bool(objective.whole_batch)]:
            devices = opened[count]
            if backend == "tensorflow":
                tf.config.run_functions_eagerly(count == 1)  # two devices need a graph
            with devices.scope():
                model = create_model(make, used_pooler=objective is mlm_nsp.OBJECTIVE)
                sgd = Descent(1.0)
                sgd.build(model.trainable_variables)
            before = [keras.ops.convert_to_numpy(v) for v in model.trainable_variables]
            changes = {"seed": SEED, "gradient_accumulation_steps": parts}
            steps = devices.train_steps(model, sgd, objective, dataclasses.replace(configs[count], **changes))
            with mock.patch("bert_keras.models.electra.sample", best_guess):
                steps(steps.feed(phase, 0), 1)
            for variable, old in zip(steps.model.trainable_variables, before, strict=True):
                new = keras.ops.convert_to_numpy(variable)
                numbers[f"{name}: {run}: {variable.path.split('/', 1)[1]}"] = old - new
        batch = next(examples.train_batches(batch_size=rows, first_example=0, seed=SEED))
        halves = [
            {key: values[half] for key, values in batch.items()} for half in (np.s_[: rows // 2], np.s_[rows // 2 :])
        ]
        numbers[f"{name}: totals"] = np.array([[float(x) for x in objective.totals(half)] for half in halves])
    np.savez(out, **numbers)


if __name__ == "__main__":
    main(*sys.argv[1:])
