"""The gate of fine-tuned models, through TFX's Evaluator and TFMA, on a model that answers what it is told."""

import json
import math

import pytest
import tensorflow as tf
from tfx.components.evaluator.executor import Executor
from tfx.types import standard_artifacts
from tfx.types.artifact_utils import encode_split_names
from tfx.utils import proto_utils

from bert_keras.config import BertConfig
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import TASKS, task_of
from components.evaluator import slices as by_length
from components.evaluator import task_scores
from components.evaluator.results import HIGH, LOW, evaluated, evaluated_by_slice, intervals
from components.evaluator.settings import TaskSliceSettings
from pipeline.eval_gate import task_eval_config
from pipeline.finetune_recipes import TaskGate
from pipeline.orchestrated import BEAM_PIPELINE_ARGS
from pipeline.summary import gate_failures

VOCABULARY = {
    "bert_config.json": BertConfig.size(1, 64, vocab_size=7).to_json(),
    "vocab_spec.json": '{"algorithm": "wordpiece", "lower_case": true}',
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n0\n1\n",
}
# Most tests are about all rows, and labels.
SLICES = TaskSliceSettings(lengths=())


class Told(tf.Module):
    """Answers with the text of the row."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        one = tf.io.FixedLenFeature([], tf.string)
        row = tf.io.parse_example(examples, {"row_id": one, "gold": one, "text": one})
        return {"row_id": row["row_id"], "gold": row["gold"], "answer": row["text"]}


class Always(Told):
    """Answers "1" to everything."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        told = super().evaluate(examples)
        return {**told, "answer": tf.fill(tf.shape(told["answer"]), "1")}


@pytest.fixture
def judge(tmp_path):
    """`judge(task, gate, [(gold, answer[, source])...], baseline)` -> (blessed, folder of the evaluation)."""

    def model(kind, name):
        artifact = standard_artifacts.Model()
        artifact.id, artifact.uri = 7, str(tmp_path / name)
        told = kind()
        folder = f"{artifact.uri}/Format-Serving"
        tf.saved_model.save(told, folder, signatures={"evaluate": told.evaluate})
        for file, content in VOCABULARY.items():
            with open(f"{folder}/{file}", "w", encoding="utf-8") as out:
                out.write(content)
        return artifact

    def judge(task, gate, rows, baseline=None, slices=SLICES):
        examples = standard_artifacts.Examples()
        examples.uri = str(tmp_path / "examples")
        examples.split_names = encode_split_names(["train", "eval"])
        # The rows of the training split are all wrong: the gate is about `eval`.
        for split, answered in {"train": [(gold, "nonsense") for gold, *_ in rows], "eval": rows}.items():
            tf.io.gfile.makedirs(f"{examples.uri}/Split-{split}")
            with tf.io.TFRecordWriter(f"{examples.uri}/Split-{split}/rows.tfrecord") as writer:
                for number, (gold, answer, *source) in enumerate(answered):
                    example = tf.train.Example()
                    row = TaskRow(str(number), {"text": answer}, gold, *source)
                    for name, values in row.to_features().items():
                        example.features.feature[name].bytes_list.value.extend(values)
                    writer.write(example.SerializeToString())
        evaluation, blessing = standard_artifacts.ModelEvaluation(), standard_artifacts.ModelBlessing()
        evaluation.uri, blessing.uri = str(tmp_path / "evaluation"), str(tmp_path / "blessing")
        before = [model(baseline, "baseline")] if baseline else []
        Executor(Executor.Context(beam_pipeline_args=list(BEAM_PIPELINE_ARGS))).Do(
            {"examples": [examples], "model": [model(Told, "candidate")], "baseline_model": before},
            {"evaluation": [evaluation], "blessing": [blessing]},
            {
                "eval_config": proto_utils.proto_to_json(task_eval_config(task_of(task), gate, slices)),
                "module_path": by_length.__name__,
                "example_splits": json.dumps(None),
            },
        )
        return bool(blessing.get_int_custom_property("blessed")), evaluation.uri

    return judge


def measured(evaluation):
    return [(part["by"], part["of"], part["metrics"]) for part in evaluated_by_slice(evaluation)]


def spans(text):
    return {"answers": [{"text": text, "answer_start": 0}]}


# One entity of three is found, and one of the two that are told is right: precision 1/2, recall 1/3, F1 0.4.
TAGS = [(["B-person", "I-person", "O"], "B-person I-person O"), (["B-group", "O", "B-group"], "O B-group O")]


@pytest.mark.parametrize(
    ("task", "rows", "expected"),
    [
        # Two of three right; of "1": one hit, one false alarm, none missed: F1 2/3.
        ("mrpc", [("1", "1"), ("0", "1"), ("0", "0")], {"f1": 2 / 3, "accuracy": 2 / 3}),
        # Ranks 1 2 3 against 1 3 2: Spearman 1 - 6 * 2 / (3 * 8) = 0.5.
        ("sts-b", [(1.0, "0.5"), (2.0, "4.5"), (3.0, "4.0")], {"spearman": 0.5}),
        ("swag", [(2, "2"), (0, "3")], {"accuracy": 0.5}),
        ("squad1.1", [(spans("the cat"), "a cat!"), (spans("x"), "y")], {"exact_match": 50.0, "f1": 50.0}),
        ("ner", TAGS, {"f1": 0.4, "precision": 0.5, "recall": 1 / 3}),
    ],
)
def test_each_kind_is_judged_by_its_official_score(judge, task, rows, expected):
    first = task_of(task).metrics[0]
    blessed, evaluation = judge(task, TaskGate(min_score=expected[first] - 1e-6), rows)
    assert blessed and gate_failures(evaluation) == []
    found = evaluated(evaluation)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["example_count"] == len(rows)
    # Of two rows one of which is right nothing is sure.
    assert set(intervals(evaluation)) <= {*found} - {"example_count"}
    by_label = [
        ("label", "0", {"f1": 0.0, "accuracy": 0.5, "example_count": 2.0}),
        ("label", "1", {"f1": 1.0, "accuracy": 1.0, "example_count": 1.0}),
    ]
    assert measured(evaluation) == (by_label if task == "mrpc" else [])


def test_a_score_below_the_threshold_is_told(judge):
    """Once: that of all rows is judged, not that of each label, of which one has none right."""
    blessed, evaluation = judge("sst-2", TaskGate(min_score=0.6), [("1", "1"), ("0", "1")])
    assert not blessed
    assert measured(evaluation)[0] == ("label", "0", {"accuracy": 0.0, "example_count": 1.0})
    assert gate_failures(evaluation) == ["accuracy: value 0.5 (at least 0.6 is asked)"]


# "0" and "1" are a piece each, "1 1 1" are three.
PARTS = [("1", "1", "web"), ("0", "0", "web"), ("1", "0", "book"), ("1", "1 1 1")]
LENGTHS = TaskSliceSettings(lengths=(1, 2))


def test_parts_of_the_rows_are_scored_too(judge):
    """By label, by length in pieces, and by source where a row has one; a part without rows is not there."""
    blessed, evaluation = judge("sst-2", TaskGate(min_score=0.1), PARTS, slices=LENGTHS)
    assert blessed
    assert measured(evaluation) == [
        ("label", "0", {"accuracy": 1.0, "example_count": 1.0}),
        ("label", "1", {"accuracy": pytest.approx(1 / 3), "example_count": 3.0}),
        ("length", "up to 1", {"accuracy": pytest.approx(2 / 3), "example_count": 3.0}),
        ("length", "over 2", {"accuracy": 0.0, "example_count": 1.0}),
        ("source", "book", {"accuracy": 0.0, "example_count": 1.0}),
        ("source", "web", {"accuracy": 1.0, "example_count": 2.0}),
    ]
    # Of three rows two are right: 2/3, and leaving one out gives 1/2, 1/2, 1; of one row nothing is sure.
    parts = {part["of"]: part["intervals"] for part in evaluated_by_slice(evaluation)}
    low, high = parts["up to 1"]["accuracy"]
    assert (low + high) / 2 == pytest.approx(2 / 3) and high - low == pytest.approx(2 * 4.302653 / 3, abs=1e-5)
    assert parts["over 2"] == {} and parts["web"] == {"accuracy": [1.0, 1.0]}


def test_a_part_may_have_a_threshold(judge):
    """With a baseline too; a part that has none of the rows is told, since TFMA refuses the model for it."""
    named = ("source=web:0.9", "label=1:0.3", "length=up to 1:0.7", "length=2 to 2:0.5")
    gate = TaskGate(min_score=0.1, max_score_decrease=1.0, min_slice_scores=named)
    blessed, evaluation = judge("sst-2", gate, PARTS, Always, LENGTHS)
    assert not blessed
    assert sorted(gate_failures(evaluation)) == [
        "accuracy of length up to 1: value 0.6667 (at least 0.7 is asked)",
        "no held-out rows are of length 2 to 2, which has a threshold",
    ]


@pytest.mark.parametrize(("decrease", "expected"), [(0.0, False), (0.2, False), (0.3, True)])
def test_with_a_baseline_the_change_decides_too(judge, decrease, expected):
    # The last blessed model has three of four right, this one two.
    rows = [("1", "1"), ("1", "0"), ("1", "0"), ("0", "0")]
    blessed, evaluation = judge("sst-2", TaskGate(min_score=0.1, max_score_decrease=decrease), rows, Always)
    assert blessed is expected
    assert evaluated(evaluation)["accuracy"] == 0.5
    failures = gate_failures(evaluation)
    assert failures == ([] if expected else [
        f"accuracy: change against the last blessed model -0.25 (at least {-decrease:+g} is asked)"
    ])  # fmt: skip


def test_every_task_has_a_metric_that_is_called_like_its_first_score():
    for task in TASKS.values():
        metric = getattr(task_scores, task_scores.class_name(task.name))()
        assert metric.name == task.metrics[0]
        (computation,) = metric.computations(model_names=[""])
        assert [key.name for key in computation.keys] == [
            *task.metrics,
            *(name + LOW for name in task.metrics),
            *(name + HIGH for name in task.metrics),
        ]


def ends(rows):
    """(lower end, upper end) of the accuracy of rows of SST-2."""
    (computation,) = task_scores.Score_sst_2().computations(model_names=[""])
    found = computation.combiner.extract_output(rows)
    return tuple(value for key, value in found.items() if key.name.endswith((LOW, HIGH)))


def test_the_interval_of_a_score_by_hand():
    """Of a share, leaving one out is the textbook's sqrt(p (1 - p) / (n - 1)), times Student's t of n - 1."""
    right, wrong = (b'"1"', b"1"), (b'"1"', b"0")
    # p = 3/4 of 4: 0.25 times 3.182446.
    assert ends([right, wrong, right, right]) == pytest.approx((0.75 - 0.795612, 0.75 + 0.795612), abs=1e-6)
    assert all(map(math.isnan, ends([right])))
    # Whatever order they come in; of many rows it is near the textbook's too.
    many = [right] * 700 + [wrong] * 300
    low, high = ends(many)
    assert ends(many[::-1]) == (low, high)
    assert (high - low) / 2 == pytest.approx(2.093 * math.sqrt(0.7 * 0.3 / 999), rel=0.35)
