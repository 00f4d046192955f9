"""A fabricated fine-tuning of each task type: the files and metadata of its page."""

import dataclasses
import json
import os

from bert_keras.data.tfrecord import bytes_example, frame
from bert_keras.files import json_text
from bert_keras.tasks.metrics.scores import score
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.submissions.prediction_files import official_name, write_predictions
from bert_keras.tasks.table import task_of
from tests.support.pipeline.fabricated_run import FINISHED, STAGES, FinishedRun

FILES, MODEL = "feedface" * 8, "c0ffee00" * 8
CONTEXT = "The tower was built in 1889 by the company of Gustave Eiffel, and was painted in 1968."


def texts(*rows):
    return [TaskRow(str(number), {"text": text}, gold) for number, (text, gold) in enumerate(rows)]


def question(row_id, asked, *answers):
    given = [{"text": text, "answer_start": CONTEXT.index(text)} for text in answers]
    return TaskRow(row_id, {"question": asked, "context": CONTEXT}, {"answers": given})


# By task: labels, held-out rows, answers. The first row is right, the others are wrong. In the golden pages the
# correlation of cola is (1 * 0 - 1 * 1) / sqrt(2 * 2 * 1 * 1), F1 of squad1.1 the mean of 1, 2 * 1 / (2 + 3) and 0,
# and of ner one of three entities is found, and one of three is right.
KINDS = {
    "sst-2": (
        ("0", "1"),
        texts(("a fine film", "1"), ("a <script>alert(1)</script> film", "0"), ("dull & long", "0"), ("dull", "0")),
        ["1", "1", "1", "0"],
    ),
    "cola": (("0", "1"), texts(("He sleeps.", "1"), ("Sleeps he dog.", "0"), ("She ran.", "1")), ["1", "1", "0"]),
    "text-labels": (
        ("joy", "love"),
        texts(("a fine film", ["joy"]), ("the & best", ["joy", "love"]), ("dull", [])),
        [["joy"], ["joy"], ["love"]],
    ),
    "sts-b": (
        (),
        [
            TaskRow(row_id, {"text": text, "text_pair": "A dog runs."}, gold)
            for row_id, text, gold in (("7", "A dog ran.", 4.8), ("8", "A cat sits.", 0.5), ("9", "Dogs run.", 4.0))
        ],
        [4.8, 3.125, 3.5],
    ),
    "rerank": (
        (),
        [
            TaskRow(str(number), {"text": query, "text_pair": passage}, [query, label])
            for number, (query, passage, label) in enumerate(
                (("who?", "Ann did.", 1), ("who?", "<b>No</b> one.", 0), ("when?", "In May.", 2), ("when?", "No.", 0))
            )
        ],
        [2.5, 1.25, -0.5, 0.5],
    ),
    "codah": (
        (),
        [
            TaskRow("0", {"text": "He opens", "choices": ("a door", "the sea", "an ache", "a noun")}, 0),
            TaskRow("1", {"text": "She eats", "choices": ("a wall", "an apple", "a verb", "<b>air</b>")}, 1),
        ],
        [0, 3],
    ),
    "squad1.1": (
        (),
        [question("a", "When?", "1889"), question("b", "Who?", "Gustave Eiffel"), question("c", "When?", "in 1889")],
        ["1889", "company of Gustave", "1968"],
    ),
    "squad2.0": (
        (),
        [question("a", "When?", "1889"), question("b", "Who sold it?"), question("c", "Who?", "Gustave Eiffel")],
        ["1889", "Gustave Eiffel", ""],
    ),
    "ner": (
        ("B-LOC", "B-PER", "I-LOC", "I-PER", "O"),
        texts(
            ("Ann Lee slept", ["B-PER", "I-PER", "O"]),
            ("Bob saw <i> New York", ["B-PER", "O", "O", "B-LOC", "I-LOC"]),
        ),
        [["B-PER", "I-PER", "O"], ["O", "B-PER", "O", "B-LOC", "O"]],
    ),
}  # fmt: skip
# What each kind logs beside its loss.
LOGGED = {"regression": (), "span": ("start_accuracy", "end_accuracy")}
GRID = {"train_batch_size": [16, 32], "learning_rate": [5e-5, 2e-5], "num_train_epochs": [2.0, 3.0]}


READ = {"train": ["/somewhere/data/train.tsv"], "test": ["/somewhere/data/test.tsv"]}


class FabricatedTask(FinishedRun):
    """A finished fine-tuning."""

    def __init__(self, name, run_dir, monkeypatch):
        labels, self.rows, self.answers = KINDS[name]
        self.task = dataclasses.replace(task_of(name), labels=labels)
        scores = score(self.task, [row.gold for row in self.rows], self.answers)
        self.scores = {"eval": scores}
        stages = {"TaskExampleGen": (0.4, (), {"examples": "Examples"})}
        stages |= {name: STAGES[name] for name in ("Trainer", "Evaluator", "ModelPush")}
        summary = self._summary({metric: scores[metric] for metric in self.task.metrics})
        super().__init__(run_dir, monkeypatch, summary, stages)
        self.run.stages["TaskExampleGen"].properties["files"] = json.dumps(READ)
        self.write_rows()
        log = [self._log_line(kind, step) for kind, step in (("train", 20), ("train", 28), ("eval", 28))]
        log.append({"kind": "eval", "step": 28, "time": 9.0, "official_f1": 0.5})
        self.log = self.file("model_run", "log.jsonl", "".join(json.dumps(line) + "\n" for line in log))

    @property
    def metric(self):
        """The main score."""
        return self.task.metrics[0]

    def write_rows(self):
        """Write rows and answers."""
        records = b"".join(frame(bytes_example(row.to_features())) for row in self.rows)
        self.shard = self.file("examples", "Split-eval/examples-00000-of-00001.tfrecord", records)
        self.predictions = os.path.join(
            self.artifacts["model_run"].uri, "predictions", "eval", official_name(self.task)
        )
        os.makedirs(os.path.dirname(self.predictions), exist_ok=True)
        write_predictions(self.task, self.rows, self.answers, self.predictions)

    def write(self):
        """Write the report from the current `summary` and `scores`."""
        self.file("model_run", "scores.json", json_text(self.scores))
        return super().write()

    def restart(self, values, ensemble=None):
        """Gives the run restarts, by seed from 11, of which the best, or all of an ensemble, are taken."""
        seeds = [str(seed) for seed in range(11, 11 + len(values))]
        best = sorted(seeds, key=lambda seed: -values[seeds.index(seed)])
        mean = sum(values) / len(values)
        self.summary["restarts"] = {
            "metric": self.metric,
            "scores": {s: dict.fromkeys(self.task.metrics, value) for s, value in zip(seeds, values, strict=True)},
            "mean": mean,
            "deviation": (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5,
            "chosen": [int(seed) for seed in (best if ensemble else best[:1])],
            "ensemble": ensemble and dict.fromkeys(self.task.metrics, ensemble),
        }

    def search(self, scores):
        """Gives the run a search over `GRID` with scores, in the order of its values; None: it diverged."""
        values = [(b, r, e) for b in GRID["train_batch_size"] for r in GRID["learning_rate"] for e in (2.0, 3.0)]
        trainings = [
            {**dict(zip(GRID, of, strict=True)), "score": value} for of, value in zip(values, scores, strict=True)
        ]
        best = max(trainings, key=lambda training: training["score"] or 0)
        self.summary["search"] = {"metric": self.metric, "trainings": trainings, "best": best}

    def _summary(self, scores):
        return FINISHED | {
            "recipe": {
                "name": self.task.name,
                "data": {"max_train_rows": 640, "max_eval_rows": 0},
                "training": {"train_batch_size": 32, "learning_rate": 5e-5, "num_train_epochs": 3.0},
                "gate": {"min_score": 0.3, "max_score_decrease": 0.0, "min_slice_scores": [], "allow_chance": False},
                "search": {"learning_rate": [5e-5, 2e-5]},
            },
            "workflow": "finetune",
            "fingerprints": {
                "Rows: the files' names and contents": FILES, "Initial model tiny <bert>: sha256 of its files": MODEL,
            },
            "task": self.task.name,
            "labels": list(self.task.labels),
            "rows": {"train": 640, "eval": len(self.rows), "test": 5},
            "rows_skipped": {"/somewhere/data/train.tsv": 2},
            "scores": scores,
            "chances": {self.metric: [0.25 * scores[self.metric], 9.0]},
            "teacher": None,
            "search": None,
            "restarts": {
                "metric": self.metric, "scores": {"11": scores}, "mean": scores[self.metric], "deviation": None,
                "chosen": [11], "ensemble": None,
            },
            "predictions": {},
        }  # fmt: skip

    def _log_line(self, kind, step):
        line = {"kind": kind, "step": step, "time": 1.0, "loss": 0.5}
        line |= dict.fromkeys(LOGGED.get(self.task.kind, ("accuracy",)), 0.75)
        return line | ({"learning_rate": 0.001, "tokens_per_second": 2e4} if kind == "train" else {})
