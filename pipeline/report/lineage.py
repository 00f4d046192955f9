"""Artifacts of a run as the report's table: the stage, sources and place of each."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bert_keras.objectives.table import PARTS, perplexity_text
from pipeline import stages
from pipeline.runs.run_dir import inputs_dir

if TYPE_CHECKING:
    from pipeline.report.score_format import ScoreForm
    from pipeline.runs.lineage import ArtifactRecord, Run

FILES_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Row:
    """An artifact.

    Attributes:
        stage: stage that produced it; empty for inputs of the run.
        sources: titles of the artifacts it was produced from.
        artifact: None if the run has none, e.g. no baseline.
    """

    title: str
    stage: str
    sources: str
    details: str
    artifact: ArtifactRecord | None


@dataclasses.dataclass(frozen=True)
class Lineage:
    """The table, the run directory that its paths are relative to, and named hashes."""

    rows: list[Row]
    run_dir: str
    hashes: dict[str, str]

    def place(self, row: Row) -> str:
        """An artifact's path below the run directory; if the directory was moved, the path's last three parts."""
        if row.artifact is None:
            return ""
        uri, run_dir = row.artifact.uri, os.path.abspath(self.run_dir)
        if os.path.commonpath([os.path.abspath(uri), run_dir]) == run_dir:
            return os.path.relpath(uri, run_dir)
        return "/".join(["…", *uri.rstrip("/").split("/")[-3:]])


def pretrain_lineage(run: Run, summary: Mapping[str, Any], spec: Mapping[str, Any], run_dir: str) -> Lineage:
    """The lineage of a pre-training.

    Args:
        spec: the examples' `example_spec.json`.
    """
    examples = run.stages[stages.of_phase(stages.PRETRAIN_EXAMPLE_GEN, summary["phase"])]
    (corpus,), (vocabulary,) = examples.inputs[stages.DOCUMENTS], examples.inputs[stages.VOCABULARY]
    (used,), (model,) = (run.stages[stages.EVALUATOR].inputs[key] for key in (stages.EXAMPLES, stages.MODEL))
    steps = summary["recipe"]["training"]["num_train_steps"]
    first, *_ = PARTS[summary["objective"]]
    perplexity = perplexity_text(summary[f"{first.key}_perplexity"], 2)
    fingerprint = str(run.stages[stages.CORPUS_GEN].properties["fingerprint"])
    documents = f"{summary['corpus_documents']:,} documents"
    sizes = f"{summary['examples_train']:,} to train, {summary['examples_eval']:,} held out"
    sources = "Examples, Initial model" if run.initial_model else "Examples"
    rows = [
        Row("Corpus", stages.CORPUS_GEN, _file_names(run_dir, fingerprint), documents, corpus),
        Row("Vocabulary", stages.VOCAB_GEN, "Corpus", f"{summary['vocab_size']:,} word pieces", vocabulary),
        Row("Examples", examples.name, "Corpus, Vocabulary", sizes, used),
        *_initial_rows(run, summary),
        Row("Model", stages.TRAINER, sources, f"{steps:,} steps, perplexity {perplexity}", model),
        *_outcome(run, summary, "Examples"),
    ]
    initial = summary.get("initial_model")
    hashes = {
        **({"Sha256 of the initial model's files": initial["sha256"]} if initial else {}),
        "Corpus fingerprint, of the text files' names and contents": fingerprint,
        "Vocabulary sha256, in the examples too": spec["vocabulary_sha256"],
    }
    return Lineage(rows, run_dir, hashes)


def _initial_rows(run: Run, summary: Mapping[str, Any]) -> list[Row]:
    initial = run.initial_model
    if initial is None:
        return []
    facts = summary["initial_model"]
    licence = f"licence in {facts['licence']}" if facts["licence"] else "no licence file"
    made = [f"kept: {facts['kept']}", *([f"drawn: {facts['drawn']}"] if facts["drawn"] else [])]
    return [
        Row("Initial source", stages.INITIAL_SOURCE, _name(facts["source"]), licence, None),
        Row("Initial model", stages.INITIAL_MODEL, "Initial source, Examples", "; ".join(made), initial),
    ]


def task_lineage(run: Run, summary: Mapping[str, Any], form: ScoreForm, steps: int, run_dir: str) -> Lineage:
    """The lineage of a fine-tuning."""
    started = json.loads(str(run.stages[stages.TRAINER].properties["custom_config"]))
    restarts = summary["restarts"]
    examples, (model,) = (run.stages[stages.EVALUATOR].inputs[key] for key in (stages.EXAMPLES, stages.MODEL))
    count = len(restarts["chosen"])
    trained = f"{steps:,} steps" if count == 1 else f"{count} of {steps:,} steps each"
    score = f"{form.title.partition(' ')[0]} {form.number(summary['scores'][restarts['metric']])}"
    sizes = f"{summary['rows']['train']:,} to train, {summary['rows']['eval']:,} held out"
    rows = [
        Row("Initial checkpoint", "", "", _name(started["init"]), None),
        Row("Rows", stages.TASK_EXAMPLE_GEN, "task files", sizes, examples[0]),
    ]
    rows += [
        Row(
            "Model" if count == 1 else "Models",
            stages.TRAINER,
            "Initial checkpoint, Rows",
            f"{trained}, {score}",
            model,
        ),
        *_outcome(run, summary, "Rows"),
    ]
    hashes = {
        "Fingerprint of the task's files, their names and contents": str(
            run.stages[stages.TASK_EXAMPLE_GEN].properties["fingerprint"]
        ),
        "Fingerprint of the initial checkpoint's files": started["init_fingerprint"],
    }
    return Lineage(rows, run_dir, hashes)


def _file_names(run_dir: str, fingerprint: str) -> str:
    """Base names of the corpus files, shortened to the first `FILES_SHOWN`."""
    try:
        with open(os.path.join(inputs_dir(run_dir), f"{fingerprint}.json"), encoding="utf-8") as file:
            names = sorted({os.path.basename(path) for path in json.load(file)})
    except FileNotFoundError:
        return "text files"
    others = f" and {len(names) - FILES_SHOWN:,} more" if len(names) > FILES_SHOWN else ""
    return ", ".join(names[:FILES_SHOWN]) + others


def _outcome(run: Run, summary: Mapping[str, Any], examples: str) -> list[Row]:
    """The last rows of every lineage, from the stages of `pipeline.dags.evaluate_and_push`."""
    missed, version = len(summary["gate_failures"]) + len(summary["serving"]["problems"]), summary["pushed_version"]
    verdict = "blessed" if summary["blessed"] else f"not blessed, {missed} threshold{'s' * (missed > 1)} missed"
    pushed = f"version {version}, in serving/{version}" if version else "nothing pushed by this run"
    evaluation = run.output(stages.EVALUATOR, stages.EVALUATION)
    return [
        _baseline(run),
        Row("Gate", stages.EVALUATOR, f"Model, {examples}, Baseline", verdict, evaluation),
        Row(
            "Pushed model",
            stages.MODEL_PUSH,
            "Model, Gate",
            pushed,
            run.output(stages.MODEL_PUSH, stages.PUSHED_MODEL) if version else None,
        ),
    ]


def _baseline(run: Run) -> Row:
    baseline = next(iter(run.stages[stages.EVALUATOR].inputs.get(stages.BASELINE_MODEL, [])), None)
    if baseline is None:
        return Row("Baseline", stages.TRAINER, "", "no earlier model", None)
    initial = run.initial_model
    if initial and initial.id == baseline.id:
        return Row("Baseline", stages.INITIAL_MODEL, "", "initial model", baseline)
    return Row("Baseline", stages.TRAINER, "", "last blessed model", baseline)


def _name(folder: str) -> str:
    """The name of a model's folder; for a numbered version with the name of its run or model.

    >>> _name("/models/bert/"), _name("runs/demo/serving/1"), _name("served/17")
    ('bert', 'demo/serving/1', 'served/17')
    """
    parts = folder.rstrip("/").split("/")
    version = parts[-1].isdigit()
    return "/".join(parts[-3:] if version and parts[-2:-1] == ["serving"] else parts[-2:] if version else parts[-1:])
