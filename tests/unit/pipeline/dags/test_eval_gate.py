"""The gate, passed and missed, through TFX's Evaluator and TFMA, on a model with prescribed sums."""

import dataclasses
import functools
import json
import math

import pytest
import tensorflow as tf
from tfx.components.evaluator.executor import Executor
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names
from tfx.utils import proto_utils

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_PARTS
from components.evaluator import slices as by_length
from components.evaluator.gate_failures import GateFailure
from components.evaluator.results import evaluated, evaluated_by_slice, gate_failures, intervals
from components.evaluator.settings import SliceSettings
from pipeline.dags.eval_gate import eval_config
from pipeline.recipes.settings import GateSettings
from pipeline.runners.run_steps import BEAM_PIPELINE_ARGS

# Ten predictions, four right, 10 ln 20 nats: perplexity 20, accuracy 0.4; two of three pairs right.
EXAMPLES = [
    {"mlm_nll": 4 * math.log(20), "mlm_correct": 3.0, "mlm_weight": 4.0, "nsp_correct": 1.0, "nsp_weight": 1.0},
    {"mlm_nll": 4 * math.log(20), "mlm_correct": 0.0, "mlm_weight": 4.0, "nsp_correct": 0.0, "nsp_weight": 1.0},
    {"mlm_nll": 2 * math.log(20), "mlm_correct": 1.0, "mlm_weight": 2.0, "nsp_correct": 1.0, "nsp_weight": 1.0},
]
# Five predictions, two right, 5 ln 20 nats; two of the four of boundaries, 4 ln 5 nats; nine of twelve tokens, 3 nats.
MASKED = {"mlm_nll": 5 * math.log(20), "mlm_correct": 2.0, "mlm_weight": 5.0}
OTHERS = {
    "left_to_right": {name.replace("mlm", "lm"): value for name, value in MASKED.items()},
    "span_boundary": MASKED | {"sbo_nll": 4 * math.log(5), "sbo_correct": 2.0, "sbo_weight": 4.0},
    "electra": MASKED | {"disc_nll": 3.0, "disc_correct": 9.0, "disc_weight": 12.0},
}
MET = GateSettings(max_mlm_perplexity=20.01, min_mlm_accuracy=0.4, min_nsp_accuracy=0.66, allow_chance=True)
MISSED = GateSettings(max_mlm_perplexity=19.99, min_mlm_accuracy=0.41, min_nsp_accuracy=0.67, allow_chance=True)


class Told(tf.Module):
    """Returns the sums in the examples, the first perplexity multiplied by `factor`."""

    def __init__(self, names, factor):
        super().__init__()
        self.names, self.part = names, names[0].partition("_")[0]
        self.log_factor = tf.Variable(math.log(factor), dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        sums = tf.io.parse_example(examples, {name: tf.io.FixedLenFeature([], tf.float32) for name in self.names})
        nll, weight = f"{self.part}_nll", f"{self.part}_weight"
        return {**sums, nll: sums[nll] + sums[weight] * self.log_factor}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """`examples(objective)` is an artifact whose `train` split is far worse, since the gate evaluates `eval`."""

    @functools.cache
    def examples(objective):
        artifact = standard_artifacts.Examples()
        artifact.uri = str(tmp_path_factory.mktemp("examples"))
        artifact.split_names = encode_split_names(["train", "eval"])
        for split, factor in {"train": 100.0, "eval": 1.0}.items():
            tf.io.gfile.makedirs(f"{artifact.uri}/Split-{split}")
            with tf.io.TFRecordWriter(f"{artifact.uri}/Split-{split}/examples.tfrecord") as writer:
                for number, sums in enumerate(rows_of(objective)):
                    example = tf.train.Example()
                    for name, value in sums.items():
                        example.features.feature[name].float_list.value.append(value * factor)
                    mask = [1] * (3 + number) + [0] * (4 - number)
                    example.features.feature["input_mask"].int64_list.value.extend(mask)
                    example.features.feature[DOCUMENT_GROUP].int64_list.value.append(number * DOCUMENT_PARTS)
                    writer.write(example.SerializeToString())
        return artifact

    return examples


def rows_of(objective):
    return EXAMPLES if objective == "mlm_nsp" else [OTHERS[objective]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """`model(2.0)` is a Model artifact with twice the perplexity of the examples."""

    def make(factor, objective="mlm_nsp"):
        artifact = standard_artifacts.Model()
        artifact.id, artifact.uri = 7, str(tmp_path_factory.mktemp("model"))
        told = Told(list(rows_of(objective)[0]), factor)
        tf.saved_model.save(told, f"{artifact.uri}/Format-Serving", signatures={"evaluate": told.evaluate})
        return artifact

    return make


@pytest.fixture
def judge(tmp_path, examples):
    """`judge(gate, candidate, baseline)` -> (blessed, folder of the evaluation)."""

    def judge(gate, candidate, *baseline, objective="mlm_nsp"):
        evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
        evaluation.uri, blessing.uri = str(tmp_path / "evaluation"), str(tmp_path / "blessing")
        context = Executor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))
        config = proto_utils.proto_to_json(eval_config(gate, objective, SliceSettings((3, 4))))
        Executor(context).Do(
            {"examples": [examples(objective)], "model": [candidate], "baseline_model": list(baseline)},
            {"evaluation": [evaluation], "blessing": [blessing]},
            {"eval_config": config, "example_splits": json.dumps(None), "module_path": by_length.__name__},
        )
        assert blessing.get_int_custom_property("current_model_id") == 7
        return bool(blessing.get_int_custom_property("blessed")), evaluation.uri

    return judge


def test_without_a_baseline_only_values_are_gated(judge, model):
    blessed, evaluation = judge(MET, model(1.0))
    assert blessed and gate_failures(evaluation) == []
    assert evaluated(evaluation) == pytest.approx(
        {"mlm_perplexity": 20.0, "mlm_accuracy": 0.4, "nsp_accuracy": 2 / 3, "example_count": 3.0}, rel=1e-5
    )
    found = intervals(evaluation)
    # Of three documents: 4.3 standard errors, of 1/3 here.
    assert found["nsp_accuracy"] == pytest.approx([0.0, 1.0])
    assert found["mlm_perplexity"] == pytest.approx([20.0, 20.0], rel=1e-4)
    assert set(found) == {"mlm_perplexity", "mlm_accuracy", "nsp_accuracy"}
    # The examples have 3, 4 and 5 real tokens.
    parts = evaluated_by_slice(evaluation)
    assert [(part["by"], part["of"]) for part in parts] == [("length", of) for of in ("up to 3", "4 to 4", "over 4")]
    assert [part["metrics"]["mlm_accuracy"] for part in parts] == [0.75, 0.0, 0.5]
    assert {part["metrics"]["example_count"] for part in parts} == {1.0}


def test_each_missed_value_is_reported(judge, model):
    blessed, evaluation = judge(MISSED, model(1.0))
    assert not blessed
    failures = sorted(gate_failures(evaluation), key=lambda failure: failure.metric)
    assert [dataclasses.astuple(failure)[:6] for failure in failures] == [
        ("mlm_accuracy", "value", None, pytest.approx(0.4), "at least", pytest.approx(0.41)),
        ("mlm_perplexity", "value", None, pytest.approx(20.0), "at most", pytest.approx(19.99)),
        ("nsp_accuracy", "value", None, pytest.approx(2 / 3), "at least", pytest.approx(0.67)),
    ]


def test_a_diverged_model_is_refused(judge, model):
    blessed, evaluation = judge(MET, model(math.nan))
    assert not blessed
    (failure,) = gate_failures(evaluation)
    assert failure.metric == "mlm_perplexity" and math.isnan(failure.value)


@pytest.mark.parametrize(
    ("factor", "max_increase", "expected"),
    [
        # The candidate's perplexity is `factor` times the baseline's; twice as much, without an increase: below.
        (1.0, 0.0, True),
        (1.05, 0.06, True),
        (0.96, -0.05, False),
    ],
)
def test_with_a_baseline_the_change_is_gated_too(judge, model, factor, max_increase, expected):
    gate = GateSettings(max_mlm_perplexity=1000.0, max_mlm_perplexity_increase=max_increase, allow_chance=True)
    blessed, evaluation = judge(gate, model(2.0 * factor), model(2.0))
    assert blessed is expected
    assert evaluated(evaluation)["mlm_perplexity"] == pytest.approx(40.0 * factor, rel=1e-5)
    missed = GateFailure(
        "mlm_perplexity", "change", None, pytest.approx(40.0 * factor, rel=1e-5), "at most",
        baseline=pytest.approx(40.0, rel=1e-5), allowed_change=max_increase, relative=True,
    )  # fmt: skip
    assert gate_failures(evaluation) == [missed] * (not expected)


@pytest.mark.parametrize(
    ("objective", "measured"),
    [
        ("left_to_right", {"lm_perplexity": 20.0, "lm_accuracy": 0.4}),
        (
            "span_boundary",
            {"mlm_perplexity": 20.0, "mlm_accuracy": 0.4, "sbo_perplexity": 5.0, "sbo_accuracy": 0.5},
        ),
        ("electra", {"mlm_perplexity": 20.0, "mlm_accuracy": 0.4, "disc_loss": 0.25, "disc_accuracy": 0.75}),
    ],
)
def test_each_objective_has_its_own_metrics_and_bounds(judge, model, objective, measured):
    """Objectives without next sentences have no bound on them, although `MISSED` sets one of 0.67."""
    candidate, baseline = model(1.0, objective), model(0.5, objective)
    blessed, evaluation = judge(MISSED, candidate, baseline, objective=objective)
    own = {name: value for name, value in evaluated(evaluation).items() if not name.endswith("_diff")}
    assert own == pytest.approx({**measured, "example_count": 1.0}, rel=1e-5)
    part = "lm" if objective == "left_to_right" else "mlm"
    assert not blessed
    found = sorted((of.metric, of.kind, of.value, of.baseline) for of in gate_failures(evaluation))
    assert found == [
        (f"{part}_accuracy", "value", pytest.approx(0.4), None),
        (f"{part}_perplexity", "change", pytest.approx(20.0), pytest.approx(10.0)),
        (f"{part}_perplexity", "value", pytest.approx(20.0), None),
    ]
