"""The floor of chance of fine-tuned models: guessing is refused for every task, reading is not.

Scores are computed by the official metrics, and TFMA decides with the gate's own configuration.
"""

import json
import random

import pytest
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.evaluators import metrics_validator

from bert_keras.tasks.table import task_of
from components.evaluator import task_scores
from components.evaluator.chance import over_chance
from components.evaluator.results import CHANCE
from components.evaluator.settings import TaskSliceSettings
from pipeline.dags.eval_gate import task_eval_config
from pipeline.recipes.finetuning import TaskGate

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
    if task.kind == "span":
        return gold["answers"][0]["text"] if gold["answers"] else ""
    return " ".join(gold) if task.kind == "tagging" else str(gold)


# By task: a function that draws golds, constant answers, and a function that draws answers (given only the length).
TASKS = {
    "sst-2": (labels(2, [0.5, 0.5]), ["0", "1"], lambda gold: RNG.choice("01")),
    # Three labels, of which the most frequent has 58 %.
    "text": (labels(3, [0.58, 0.3, 0.12]), ["0", "1", "2"], lambda gold: RNG.choice("012")),
    "mrpc": (labels(2, [0.32, 0.68]), ["0", "1"], lambda gold: RNG.choice("01")),
    "cola": (labels(2, [0.3, 0.7]), ["0", "1"], lambda gold: RNG.choice("01")),
    "sts-b": (lambda: round(RNG.uniform(0, 5), 2), ["2.5", "0.0"], lambda gold: str(RNG.uniform(0, 5))),
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


def judge(name, rows, answers, gate):
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
        task_eval_config(task, gate, TaskSliceSettings(lengths=())), has_baseline=False, rubber_stamp=True
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
        blessed, _ = judge(name, rows, answers, GATE)
        assert not blessed, constant
    drawn = [piece(context) if draw is None else draw(gold) for gold, context in rows]
    assert not judge(name, rows, drawn, GATE)[0]
    # Two of three rows are answered correctly, the others at random.
    read = [right(task, gold) if number % 3 else drawn[number] for number, (gold, _) in enumerate(rows)]
    blessed, chance = judge(name, rows, read, GATE)
    assert blessed, chance


def test_the_floor_can_be_lifted():
    RNG.seed(7)
    rows = data("text")
    answers = ["0"] * ROWS
    blessed, chance = judge("text", rows, answers, GATE)
    commonest = sum(gold == "0" for gold, _ in rows) / ROWS
    assert not blessed and chance == pytest.approx(commonest)
    assert judge("text", rows, answers, TaskGate(min_score=-1.0, allow_chance=True))[0]


def test_one_row_gives_no_standard_error():
    assert not judge("sst-2", [("1", None)], ["1"], GATE)[0]


@pytest.mark.parametrize(
    ("difference", "score", "error", "expected"),
    [(0.1, 0.6, 0.04, 2.5), (1e-7, 0.6, 1e-9, 0.0), (1.0, 1.0, 0.0, 1000.0), (-0.1, 0.2, 0.05, -2.0)],
)
def test_standard_errors_above_chance(difference, score, error, expected):
    assert over_chance(difference, score, error) == pytest.approx(expected)
