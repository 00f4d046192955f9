"""A fabricated run: the files and metadata of a report."""

import copy
import dataclasses
import hashlib
import json
import os
import types

from components.evaluator.gate_failures import GateFailure
from components.io.shards import write_json
from pipeline.report import base_page
from pipeline.report.page import write_report
from pipeline.runs import lineage

FINGERPRINT = "feedface" * 8
SHA = "c0ffee00" * 8
# What the summaries of all runs have.
FINISHED = {
    "run": "2026-01-02T03:04:05.678901",
    "blessed": True,
    "gate_failures": [],
    "serving": {"problems": []},
    "slices": [],
    "pushed_version": "17",
    "served_version": "17",
    "seconds_by_stage": {"Trainer": 61.0},
    "stage_states": {"Trainer": "COMPLETE"},
    "versions": {"python": "3.11.7", "tfx": "1.16.0"},
    "notices": [],
}
SUMMARY = {
    **FINISHED,
    "workflow": "pretrain",
    "fingerprints": {"Corpus: the files' names and contents": FINGERPRINT},
    "objective": "mlm_nsp",
    "phase": "",
    "recipe": {
        "name": "toy",
        "corpus": {"segments": "sentences"},
        "vocabulary": {"algorithm": "wordpiece", "lower_case": True},
        "gate": {
            "max_mlm_perplexity": 100.0,
            "max_mlm_perplexity_increase": 0.0,
            "min_mlm_accuracy": 0.2,
            "min_nsp_accuracy": 0.5,
            "allow_chance": False,
        },
        "training": {"num_train_steps": 40, "train_batch_size": 8},
    },
    "corpus_documents": 1781,
    "corpus_bytes": 1_500_000,
    "corpus_read_before": 0,
    "vocab_size": 9,
    "examples_train": 1234,
    "examples_eval": 56,
    "sources": [],
    "data_figures": [
        {
            "name": "fill_fraction",
            "of": "examples",
            "label": "filled positions",
            "value": 0.75,
            "minimum": 0.5,
            "maximum": None,
            "remedy": "pack",
        },
    ],
    "unigram_perplexity": 400.0,
    "mlm_perplexity": 80.0,
    "mlm_accuracy": 0.3,
    "nsp_accuracy": 0.8,
    "chances": {"mlm_perplexity": [400.0, 50.0], "mlm_accuracy": [0.04, 30.0], "nsp_accuracy": [0.6, 4.0]},
    "samples": [
        {"text": "Returns the [MASK] array.", "masked_word": "Sorted", "predictions": [["new", 0.5], ["sorted", 0.25]]}
    ],
    "notices": ["48% of the text is never seen", "the checkpoint <a> is damaged"],
}
COUNTS = {
    "instances": 80, "sequences": 100, "random_next": 61, "masked": 1000, "masked_as_mask": 803,
    "masked_as_random": 101, "masked_as_same": 96, "tokens": 5000, "unknown_tokens": 10,
    "real_tokens": 900, "slots": 1200, "truncated": 7,
}  # fmt: skip
PAIRS = {
    "overall": {"pairs": 2000, "accuracy": 0.525, "interval": [0.503, 0.547]},
    "phenomena": {
        "agreement": {"pairs": 1500, "accuracy": 0.6, "interval": [0.575, 0.625]},
        "islands": {"pairs": 500, "accuracy": 0.3, "interval": [0.261, 0.342]},
    },
    "paradigms": {},
    "min_accuracy": 0.6,
}
PIECES = ["[PAD]", "[UNK]", "[MASK]", "a", "##b", "th", "##ing", "sorted", "array"]


def failed(metric, kind, **fields):
    """A record of `gate_failures`."""
    return dataclasses.asdict(GateFailure(metric, kind, **fields))


# Of each stage: seconds, what it reads, and what it writes with its type.
STAGES = {
    "CorpusGen": (0.02, (), {"documents": "Examples"}),
    "VocabGen": (5.0, ("documents",), {"vocabulary": "Vocabulary"}),
    "PretrainExampleGen": (9.0, ("documents", "vocabulary"), {"examples": "Examples"}),
    "Trainer": (61.0, ("examples",), {"model": "Model", "model_run": "ModelRun"}),
    "Evaluator": (8.0, ("examples", "model"), {"evaluation": "ModelEvaluation"}),
    "ModelPush": (1.0, ("model",), {"pushed_model": "PushedModel"}),
}


class FinishedRun:
    """Files and metadata of a finished run, whose first stage was cached; `write()` makes its report."""

    def __init__(self, run_dir, monkeypatch, summary, stages):
        self.run_dir, self.summary, self.baseline, self.artifacts = str(run_dir), summary, None, {}
        made = {}
        for number, (name, (seconds, reads, writes)) in enumerate(stages.items(), start=1):
            for key, type_ in writes.items():
                uri = os.path.join(self.run_dir, "artifacts", name, key, str(number))
                self.artifacts[key] = types.SimpleNamespace(id=41 + len(self.artifacts), type=type_, uri=uri)
            inputs, outputs = ({key: [self.artifacts[key]] for key in keys} for keys in (reads, writes))
            made[name] = lineage.Stage(name, "COMPLETE" if made else "CACHED", 0.0, seconds, {}, inputs, outputs)
        self.run = lineage.Run(summary["run"], made)
        monkeypatch.setattr(lineage, "latest_run", lambda _: self.run)
        monkeypatch.setattr(base_page, "baseline_metrics", lambda _: self.baseline)

    def file(self, key, name, content):
        """Write a file of an artifact."""
        path = os.path.join(self.artifacts[key].uri, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        return path

    def write(self):
        """Write the report from the current `summary`."""
        write_json(os.path.join(self.run_dir, "summary.json"), self.summary)
        with open(write_report(self.run_dir), encoding="utf-8") as file:
            return file.read()


class Fabricated(FinishedRun):
    """A finished pre-training."""

    def __init__(self, run_dir, monkeypatch):
        super().__init__(run_dir, monkeypatch, copy.deepcopy(SUMMARY), STAGES)
        self.spec = {
            "max_seq_length": 12, "max_predictions_per_seq": 2, "dupe_factor": 2, "vocabulary_sha256": SHA,
            "objective": "mlm_nsp", "masking": {"when": "static"}, "counts": {"train": COUNTS, "eval": COUNTS},
        }  # fmt: skip
        split = {"documents": 90, "bytes": 1_000_000, "duplicates": 3, "segments": 450}
        self.file("documents", "corpus.json", json.dumps({"train": split, "eval": split, "record": {"all": {}}}))
        self.vocabulary(
            PIECES, source="learned", lower_case=True, normalization="NFD", min_word_count=2, words=4000,
            distinct_words=800,
        )  # fmt: skip
        self.log = self.file("model_run", "log.jsonl", "".join(map(log_line, ("train", "train", "eval"), (20, 40, 40))))

    def vocabulary(self, pieces, **more):
        """Write a vocabulary of word pieces."""
        content = "\n".join(pieces) + "\n"
        self.file("vocabulary", "vocab.txt", content)
        spec = {
            "algorithm": "wordpiece", "unicode_version": "14.0.0", "vocab_size": 9, "min_word_count": 1,
            "vocabulary_sha256": hashlib.sha256(content.encode()).hexdigest(),
        }  # fmt: skip
        self.file("vocabulary", "vocab_spec.json", json.dumps(spec | more))

    def begin_with_initial_model(self):
        """Add the nodes of an initial model, which is the baseline."""
        source, model = (
            types.SimpleNamespace(id=number, type="Model", uri=os.path.join(self.run_dir, *path), properties={})
            for number, path in ((48, ("..", "bert-base")), (49, ("artifacts", "InitialModel", "model", "7")))
        )
        examples = self.run.stages["PretrainExampleGen"].outputs["examples"]
        self.run.stages["InitialSource"] = lineage.Stage(
            "InitialSource", "COMPLETE", 0.0, 0.1, {}, {}, {"result": [source]}
        )
        self.run.stages["InitialModel"] = lineage.Stage(
            "InitialModel", "COMPLETE", 0.0, 4.0, {}, {"source": [source], "examples": examples}, {"model": [model]}
        )
        self.run.stages["Evaluator"].inputs["baseline_model"] = [model]
        self.summary["initial_model"] = {
            "source": "/models/bert-base", "sha256": SHA, "licence": "LICENSE", "kept": "encoder, pooler",
            "drawn": "masked-LM head", "new_tokens": 12, "metrics": {"mlm_perplexity": 100.0},
        }  # fmt: skip
        self.summary["word_perplexity"] = {
            "held_out": {"tokens_per_word": 1.2, "initial_model": 251.19, "model": 312.6},
            "reference": {"tokens_per_word": 1.1, "initial_model": 30.0, "model": 36.0, "max_forgetting": 0.1},
        }

    def write(self):
        self.file("examples", "example_spec.json", json.dumps(self.spec))
        return super().write()


def log_line(kind, step, mlm_loss=5.0):
    line = {"kind": kind, "step": step, "time": 1.0, "loss": mlm_loss + 0.6, "mlm_loss": mlm_loss}
    line |= {"mlm_accuracy": 0.1, "nsp_loss": 0.6, "nsp_accuracy": 0.7}
    if kind == "train":
        line |= {"learning_rate": 0.001, "tokens_per_second": 2e4}
    return json.dumps(line) + "\n"
