"""The gate of fine-tuned models, through TFX's Evaluator and TFMA, on a model with prescribed answers."""

import functools
import math
from pathlib import Path

import pytest
import tensorflow as tf

from bert_keras.data.tfrecord import bytes_example
from bert_keras.models.config import BertConfig
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import TASKS, task_of
from components.evaluator import task_scores
from components.evaluator.gate_failures import GateFailure
from components.evaluator.results import (
    CHANCE,
    HIGH,
    LOW,
    OVER_CHANCE,
    chances,
    evaluated,
    evaluated_by_slice,
    gate_failures,
    intervals,
)
from components.evaluator.settings import SliceSettings
from pipeline.dags.eval_gate import task_eval_config
from pipeline.recipes.finetuning import TaskGate
from tests.support.pipeline.judged_models import examples_of, judged, saved

VOCABULARY = {
    "bert_config.json": BertConfig.size(1, 64, vocab_size=7).to_json(),
    "vocab_spec.json": '{"algorithm": "wordpiece", "lower_case": true}',
    "vocab.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n0\n1\n",
}
# Most tests are about all rows, and labels.
SLICES = SliceSettings(lengths=())


class Told(tf.Module):
    """Answers with the row's text, without the spaces that tell rows apart."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        one = tf.io.FixedLenFeature([], tf.string)
        row = tf.io.parse_example(examples, {"row_id": one, "gold": one, "text": one})
        return {"row_id": row["row_id"], "gold": row["gold"], "answer": tf.strings.strip(row["text"])}


class Always(Told):
    """Answers "1" for every row."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        told = super().evaluate(examples)
        return {**told, "answer": tf.fill(tf.shape(told["answer"]), "1")}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """`model(Told)` is a Model artifact, saved once."""

    @functools.cache
    def make(kind):
        artifact = saved(kind(), tmp_path_factory.mktemp("model"))
        for file, content in VOCABULARY.items():
            Path(artifact.uri, "Format-Serving", file).write_text(content)
        return artifact

    return make


@pytest.fixture
def judge(tmp_path, model):
    """`judge(task, gate, [(gold, answer[, source])...], baseline)` -> (blessed, folder of the evaluation)."""

    def judge(task, gate, rows, baseline=None, slices=SLICES):
        context = {"context": "in may"} if task.startswith("squad") else {}

        def records(answered):
            for number, (gold, answer, *source) in enumerate(answered):
                row = TaskRow(str(number), {"text": answer + " " * number} | context, gold, *source)
                yield bytes_example(row.to_features())

        # The rows of the training split are all wrong: the gate is about `eval`.
        splits = {"train": records((gold, "nonsense") for gold, *_ in rows), "eval": records(rows)}
        examples = examples_of(splits, tmp_path / "examples")
        before = [model(baseline)] if baseline else []
        config = task_eval_config(task_of(task), gate, slices)
        return judged(tmp_path, config, examples, model(Told), *before)

    return judge


def measured(evaluation):
    return [(part["by"], part["of"], part["metrics"]) for part in evaluated_by_slice(evaluation)]


def spans(text):
    return {"answers": [{"text": text, "answer_start": 0}]}


# One entity of three is found, and one of two predictions is right: precision 1/2, recall 1/3, F1 0.4.
TAGS = [(["B-person", "I-person", "O"], "B-person I-person O"), (["B-group", "O", "B-group"], "O B-group O")]


@pytest.mark.parametrize(
    ("task", "rows", "expected"),
    [
        # Two of three right; for "1": one true positive, one false positive, no false negative: F1 2/3.
        ("mrpc", [("1", "1"), ("0", "1"), ("0", "0")], {"f1": 2 / 3, "accuracy": 2 / 3}),
        # Ranks 1 2 3 against 1 3 2: Spearman 1 - 6 * 2 / (3 * 8) = 0.5.
        pytest.param("sts-b", [(1.0, "0.5"), (2.0, "4.5"), (3.0, "4.0")], {"spearman": 0.5}, marks=pytest.mark.slow),
        pytest.param("swag", [(2, "2"), (0, "3")], {"accuracy": 0.5}, marks=pytest.mark.slow),
        ("squad1.1", [(spans("the cat"), "a cat!"), (spans("x"), "y")], {"exact_match": 50.0, "f1": 50.0}),
        ("ner", TAGS, {"f1": 0.4, "precision": 0.5, "recall": 1 / 3}),
    ],
)
def test_each_task_type_is_gated_by_its_official_score(judge, task, rows, expected):
    first = task_of(task).metrics[0]
    blessed, evaluation = judge(task, TaskGate(min_score=expected[first] - 1e-6, allow_chance=True), rows)
    assert blessed and gate_failures(evaluation) == []
    found = evaluated(evaluation)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["example_count"] == len(rows)
    # With two rows, one of them right, the interval contains everything.
    assert set(intervals(evaluation)) <= {*found} - {"example_count"}
    by_label = [
        ("label", "0", {"f1": 0.0, "accuracy": 0.5, "example_count": 2.0}),
        ("label", "1", {"f1": 1.0, "accuracy": 1.0, "example_count": 1.0}),
    ]
    assert measured(evaluation) == (by_label if task == "mrpc" else [])


def test_a_score_below_the_threshold_is_reported(judge):
    """One failure: the bound is for all rows, not for each label, of which one has no correct row."""
    blessed, evaluation = judge("sst-2", TaskGate(min_score=0.6, allow_chance=True), [("1", "1"), ("0", "1")])
    assert not blessed
    assert measured(evaluation)[0] == ("label", "0", {"accuracy": 0.0, "example_count": 1.0})
    bound = pytest.approx(0.6)
    assert gate_failures(evaluation) == [GateFailure("accuracy", "value", None, 0.5, "at least", bound)]


def test_a_score_at_chance_is_reported(judge):
    """For three of four rows "1" is right, so this model equals the constant answer; also with a baseline."""
    rows = [("1", "1"), ("1", "1"), ("1", "1"), ("0", "1")] * 5
    blessed, evaluation = judge("sst-2", TaskGate(min_score=0.6), rows, Always)
    assert not blessed
    missed = GateFailure("accuracy", "chance", None, 0.75, bound=0.75, standard_errors=0.0)
    assert gate_failures(evaluation) == [missed]
    assert chances(evaluation) == {"accuracy": [0.75, 0.0]}


def test_chance_includes_spans_of_the_contexts(judge):
    """A context is not an output of the model but read from the examples. Here it is always "in may"."""
    rows = [(spans("in may" if number % 2 else f"in may {number}"), "x") for number in range(6)]
    _, evaluation = judge("squad1.1", TaskGate(), rows)
    # For three rows each: F1 is 1, or 4/5 for two words of three; the most frequent answer alone reaches as much.
    assert chances(evaluation)["f1"][0] == pytest.approx(90.0)


# "0" and "1" are one token each, "1 1 1" has three.
PARTS = [("1", "1", "web"), ("0", "0", "web"), ("1", "0", "book"), ("1", "1 1 1")]
LENGTHS = SliceSettings(lengths=(1, 2))


def test_slices_are_scored(judge):
    """By label, by length in tokens, and by source where rows have one; slices without rows are left out."""
    blessed, evaluation = judge("sst-2", TaskGate(min_score=0.1, allow_chance=True), PARTS, slices=LENGTHS)
    assert blessed
    assert measured(evaluation) == [
        ("label", "0", {"accuracy": 1.0, "example_count": 1.0}),
        ("label", "1", {"accuracy": pytest.approx(1 / 3), "example_count": 3.0}),
        ("length", "up to 1", {"accuracy": pytest.approx(2 / 3), "example_count": 3.0}),
        ("length", "over 2", {"accuracy": 0.0, "example_count": 1.0}),
        ("source", "book", {"accuracy": 0.0, "example_count": 1.0}),
        ("source", "web", {"accuracy": 1.0, "example_count": 2.0}),
    ]
    # Two of three rows are right: 2/3, leaving one out gives 1/2, 1/2, 1; one row has no interval.
    parts = {part["of"]: part["intervals"] for part in evaluated_by_slice(evaluation)}
    low, high = parts["up to 1"]["accuracy"]
    assert (low + high) / 2 == pytest.approx(2 / 3) and high - low == pytest.approx(2 * 4.302653 / 3, abs=1e-5)
    assert parts["over 2"] == {} and parts["web"] == {"accuracy": [1.0, 1.0]}


def test_a_slice_may_have_a_threshold(judge):
    """Also with a baseline; a slice without rows is reported, since TFMA then refuses the model.

    The baseline's accuracy is 3/4, the candidate's 1/2: such a decrease is allowed here.
    """
    named = ("source=web:0.9", "label=1:0.3", "length=up to 1:0.7", "length=2 to 2:0.5")
    gate = TaskGate(min_score=0.1, max_score_decrease=1.0, min_slice_scores=named, allow_chance=True)
    blessed, evaluation = judge("sst-2", gate, PARTS, Always, LENGTHS)
    assert not blessed
    assert gate_failures(evaluation) == [
        GateFailure("accuracy", "value", ("length", "up to 1"), pytest.approx(2 / 3), "at least", pytest.approx(0.7)),
        GateFailure(None, "empty", ("length", "2 to 2")),
    ]


def test_with_a_baseline_the_change_is_gated_too(judge):
    # The last blessed model has three of four right, the candidate two.
    rows = [("1", "1"), ("1", "0"), ("1", "0"), ("0", "0")]
    gate = TaskGate(min_score=0.1, max_score_decrease=0.2, allow_chance=True)
    blessed, evaluation = judge("sst-2", gate, rows, Always)
    assert not blessed and evaluated(evaluation)["accuracy"] == 0.5
    change = {"baseline": 0.75, "allowed_change": -0.2, "relative": False}
    assert gate_failures(evaluation) == [GateFailure("accuracy", "change", None, 0.5, "at least", **change)]


def test_every_task_has_a_metric_named_as_its_first_score():
    for task in TASKS.values():
        metric = getattr(task_scores, task_scores.class_name(task.name))()
        assert metric.name == task.metrics[0]
        (computation,) = metric.computations(model_names=[""])
        assert [key.name for key in computation.keys] == [
            *task.metrics,
            *(name + LOW for name in task.metrics),
            *(name + HIGH for name in task.metrics),
            task.metrics[0] + CHANCE,
            task.metrics[0] + OVER_CHANCE,
        ]


def ends(answers, texts=None):
    """(lower, upper) end of the accuracy's interval for rows of SST-2, each with a text of its own or the given one."""
    (computation,) = task_scores.Score_sst_2().computations(model_names=[""])
    texts = range(len(answers)) if texts is None else texts
    found = computation.combiner.extract_output(
        [(*answer, b"%04d" % text) for answer, text in zip(answers, texts, strict=True)]
    )
    return tuple(value for key, value in found.items() if key.name.endswith((LOW, HIGH)))


def test_the_interval_of_a_score_by_hand():
    """For a share, the jackknife equals the textbook's sqrt(p (1 - p) / (n - 1)), times Student's t of n - 1."""
    right, wrong = (b'"1"', b"1"), (b'"1"', b"0")
    # p = 3/4 of 4: 0.25 times 3.182446.
    assert ends([right, wrong, right, right]) == pytest.approx((0.75 - 0.795612, 0.75 + 0.795612), abs=1e-6)
    assert all(map(math.isnan, ends([right])))
    # Of no text more is known if it has three rows.
    thrice = ends([right, wrong, right, right] * 3, [0, 1, 2, 3] * 3)
    assert thrice == pytest.approx((0.75 - 0.795612, 0.75 + 0.795612), abs=1e-6)
    # In any order; with many rows it approaches the textbook's too.
    many = [right] * 700 + [wrong] * 300
    low, high = ends(many)
    assert ends(many[::-1], range(1000)[::-1]) == (low, high)
    assert (high - low) / 2 == pytest.approx(2.093 * math.sqrt(0.7 * 0.3 / 999), rel=0.35)
