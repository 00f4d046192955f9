"""The gate, passed and missed, through TFX's Evaluator and TFMA; and its floor of chance."""

import dataclasses
import functools
import json
import math
import random

import pytest
import tensorflow as tf
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.evaluators import metrics_validator

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_PARTS, SOURCE
from bert_keras.tasks.table import task_of
from components.evaluator import task_scores
from components.evaluator.chance import over_chance
from components.evaluator.gate_failures import GateFailure
from components.evaluator.results import CHANCE, evaluated, evaluated_by_slice, gate_failures, intervals
from components.evaluator.settings import SliceSettings
from pipeline.dags.eval_gate import eval_config, task_eval_config
from pipeline.recipes.finetuning import TaskGate
from pipeline.recipes.settings import GateSettings
from tests.support.pipeline.judged_models import examples_of, judged, saved

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
    """Returns the sums in the examples, the first perplexity multiplied by `factor`, or that of one source."""

    def __init__(self, names, factor, source=None):
        super().__init__()
        self.source = source
        self.names, self.part = names, names[0].partition("_")[0]
        self.log_factor = tf.Variable(math.log(factor), dtype=tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples):
        sums = tf.io.parse_example(examples, {name: tf.io.FixedLenFeature([], tf.float32) for name in self.names})
        nll, weight = f"{self.part}_nll", f"{self.part}_weight"
        source = tf.io.parse_example(examples, {SOURCE: tf.io.FixedLenFeature([], tf.string)})[SOURCE]
        chosen = tf.cast(source == (self.source or source), tf.float32)
        return {**sums, nll: sums[nll] + sums[weight] * self.log_factor * chosen}


def rows_of(objective):
    return EXAMPLES if objective == "mlm_nsp" else [OTHERS[objective]]


def record(number, sums, factor):
    example = tf.train.Example()
    for name, value in sums.items():
        example.features.feature[name].float_list.value.append(value * factor)
    example.features.feature["input_mask"].int64_list.value.extend([1] * (3 + number) + [0] * (4 - number))
    example.features.feature[DOCUMENT_GROUP].int64_list.value.append(number * DOCUMENT_PARTS)
    example.features.feature[SOURCE].bytes_list.value.append(b"law" if number else b"web")
    return example.SerializeToString()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """`model(2.0)` is a Model artifact with twice the perplexity of the examples, saved once."""

    @functools.cache
    def make(factor, objective="mlm_nsp", source=None):
        return saved(Told(list(rows_of(objective)[0]), factor, source), tmp_path_factory.mktemp("model"))

    return make


@pytest.fixture
def judge(tmp_path):
    """`judge(gate, candidate, baseline)` -> (blessed, folder of the evaluation)."""

    def judge(gate, candidate, *baseline, objective="mlm_nsp"):
        # The training split is far worse: the gate is about `eval`.
        splits = {
            split: [record(number, sums, factor) for number, sums in enumerate(rows_of(objective))]
            for split, factor in {"train": 100.0, "eval": 1.0}.items()
        }
        config = eval_config(gate, objective, SliceSettings((3, 4)))
        return judged(tmp_path, config, examples_of(splits, tmp_path / "examples"), candidate, *baseline)

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
    *parts, law, web = evaluated_by_slice(evaluation)
    assert [(part["by"], part["of"]) for part in parts] == [("length", of) for of in ("up to 3", "4 to 4", "over 4")]
    assert [part["metrics"]["mlm_accuracy"] for part in parts] == [0.75, 0.0, 0.5]
    assert {part["metrics"]["example_count"] for part in parts} == {1.0}
    assert [(part["by"], part["of"]) for part in (law, web)] == [("source", "law"), ("source", "web")]
    assert web["metrics"] == parts[0]["metrics"] and law["metrics"]["example_count"] == 2.0


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
        # The candidate's perplexity is `factor` times the baseline's. Other increases: by source, below.
        (1.0, 0.0, True),
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


@pytest.mark.parametrize(("increase", "expected"), [(0.61, True), (0.59, False)])
def test_a_model_that_is_better_but_worse_in_a_source_is_refused(judge, model, increase, expected):
    """The baseline's perplexity is 40 in both sources, the candidate's 64 in one of three rows, 20 in the others."""
    gate = GateSettings(max_mlm_perplexity=1000.0, max_source_perplexity_increase=increase, allow_chance=True)
    candidate = model(3.2, source="web")
    blessed, evaluation = judge(gate, candidate, model(2.0))
    assert blessed is expected and evaluated(evaluation)["mlm_perplexity"] < 39
    missed = GateFailure(
        "mlm_perplexity", "change", ("source", "web"), pytest.approx(64.0, rel=1e-5), "at most",
        baseline=pytest.approx(40.0, rel=1e-5), allowed_change=increase, relative=True,
    )  # fmt: skip
    assert gate_failures(evaluation) == [missed] * (not expected)


def test_without_a_last_blessed_model_no_source_is_compared(judge, model):
    gate = GateSettings(max_mlm_perplexity=1000.0, max_source_perplexity_increase=0.0, allow_chance=True)
    assert judge(gate, model(3.2, source="web"))[0]


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


ROWS = 300
WORDS = [f"w{number}" for number in range(400)]
TAGS = ["O"] * 14 + ["B-person", "I-person", "B-place", "B-place", "I-place", "I-place"]
RNG = random.Random(7)


def labels(count, shares):
    return lambda: RNG.choices([str(label) for label in range(count)], shares)[0]


def question(unanswerable):
    """(gold, context): one to three words of the context, a tenth of them the same everywhere; or no answer."""
    context = [RNG.choice(WORDS) for _ in range(120)]
    start, size = RNG.randrange(110), RNG.randrange(1, 4)
    text = "in may" if RNG.random() < 0.1 else " ".join(context[start : start + size])
    none = unanswerable and RNG.random() < 0.5
    return {"answers": [] if none else [{"text": text, "answer_start": 0}]}, " ".join(context)


def piece(context):
    words, size = context.split(), RNG.randrange(1, 10)
    start = RNG.randrange(len(words) - size)
    return " ".join(words[start : start + size])


def right(task, gold):
    """The result of `evaluate` for a row answered correctly."""
    if task.kind == "ranking":
        return str(gold[1])
    if task.kind == "span":
        return gold["answers"][0]["text"] if gold["answers"] else ""
    joined = {"tagging": " ", "multi_label": "|"}
    return joined[task.kind].join(gold) if task.kind in joined else str(gold)


# By task: a function that draws golds, constant answers, and a function that draws answers (given only the length).
TASKS = {
    "sst-2": (labels(2, [0.5, 0.5]), ["0", "1"], lambda gold: RNG.choice("01")),
    # Three labels, of which the most frequent has 58 %.
    "text": (labels(3, [0.58, 0.3, 0.12]), ["0", "1", "2"], lambda gold: RNG.choice("012")),
    # Of six rows three have a, two b, one c: always a and b has the best micro F1.
    "text-labels": (
        lambda: sorted(label for label, share in zip("abc", (3, 2, 1), strict=True) if RNG.random() < share / 6),
        ["", "a", "a|b", "a|b|c"],
        lambda gold: "|".join(label for label in "abc" if RNG.random() < 0.5),
    ),
    "mrpc": (labels(2, [0.32, 0.68]), ["0", "1"], lambda gold: RNG.choice("01")),
    "cola": (labels(2, [0.3, 0.7]), ["0", "1"], lambda gold: RNG.choice("01")),
    "sts-b": (lambda: round(RNG.uniform(0, 5), 2), ["2.5", "0.0"], lambda gold: str(RNG.uniform(0, 5))),
    # Thirty queries of some ten passages, a fifth of them relevant.
    "rerank": (
        lambda: [str(RNG.randrange(30)), RNG.choice([0, 0, 0, 0, 1])],
        ["0.5", "-1.0"],
        lambda gold: str(RNG.uniform(-1, 1)),
    ),
    "swag": (lambda: RNG.randrange(4), ["0", "3"], lambda gold: str(RNG.randrange(4))),
    "squad1.1": (None, ["in may", ""], None),
    "squad2.0": (None, ["in may", ""], None),
    "ner": (
        lambda: [RNG.choice(TAGS) for _ in range(RNG.randrange(3, 20))],
        ["O", "B-place", "I-person"],
        lambda gold: " ".join(RNG.choice(sorted(set(TAGS))) for _ in gold),
    ),
}


def data(name):
    """(gold, context) of each row; the context is None for a task without contexts."""
    draw, *_ = TASKS[name]
    rows = ROWS // 3 if name == "ner" else ROWS  # its scores are the slowest
    return [question(name == "squad2.0") if draw is None else (draw(), None) for _ in range(rows)]


def refused_or_blessed(name, rows, answers, gate):
    """(blessed, chance): TFMA's verdict on a model with these answers."""
    task = task_of(name)
    (computation,) = getattr(task_scores, task_scores.class_name(name))().computations(model_names=[""])
    written = [
        tuple(text.encode() for text in (json.dumps(gold), answer, context or str(number)))
        for number, ((gold, context), answer) in enumerate(zip(rows, answers, strict=True))
    ]
    combiner = computation.combiner
    measured = combiner.extract_output(combiner.merge_accumulators([written[:100], written[100:]]))
    config = tfma.utils.update_eval_config_with_defaults(
        task_eval_config(task, gate, SliceSettings(lengths=())), has_baseline=False, rubber_stamp=True
    )
    (chance,) = (value for key, value in measured.items() if key.name == task.metrics[0] + CHANCE)
    return metrics_validator.validate_metrics(((), measured), config).validation_ok, chance


GATE = TaskGate(min_score=-1.0)


@pytest.mark.parametrize("name", TASKS)
def test_guessing_is_refused_and_reading_is_not(name):
    RNG.seed(7)
    task, rows = task_of(name), data(name)
    _, constants, draw = TASKS[name]
    for constant in constants:
        size = [len(gold) if task.kind == "tagging" else 1 for gold, _ in rows]
        answers = [" ".join([constant] * of) for of in size]
        blessed, _ = refused_or_blessed(name, rows, answers, GATE)
        assert not blessed, constant
    drawn = [piece(context) if draw is None else draw(gold) for gold, context in rows]
    assert not refused_or_blessed(name, rows, drawn, GATE)[0]
    # Two of three rows are answered correctly, the others at random.
    read = [right(task, gold) if number % 3 else drawn[number] for number, (gold, _) in enumerate(rows)]
    blessed, chance = refused_or_blessed(name, rows, read, GATE)
    assert blessed, chance


def test_the_floor_can_be_lifted():
    RNG.seed(7)
    rows = data("text")
    answers = ["0"] * ROWS
    blessed, chance = refused_or_blessed("text", rows, answers, GATE)
    commonest = sum(gold == "0" for gold, _ in rows) / ROWS
    assert not blessed and chance == pytest.approx(commonest)
    assert refused_or_blessed("text", rows, answers, TaskGate(min_score=-1.0, allow_chance=True))[0]


def test_one_row_gives_no_standard_error():
    assert not refused_or_blessed("sst-2", [("1", None)], ["1"], GATE)[0]


@pytest.mark.parametrize(
    ("difference", "score", "error", "expected"),
    [(0.1, 0.6, 0.04, 2.5), (1e-7, 0.6, 1e-9, 0.0), (1.0, 1.0, 0.0, 1000.0), (-0.1, 0.2, 0.05, -2.0)],
)
def test_standard_errors_above_chance(difference, score, error, expected):
    assert over_chance(difference, score, error) == pytest.approx(expected)
