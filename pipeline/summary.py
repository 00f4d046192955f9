"""A run in figures: `summary.json`, and a screen for people."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow_model_analysis as tfma
from rich.console import Console
from rich.table import Table
from tfx.utils import path_utils

from bert_keras.features import EXAMPLE_SPEC_FILE, ExampleSpec
from bert_keras.unigram import unigram_perplexity
from components.corpus_gen.transforms import COUNTS_FILE
from components.evaluator.results import evaluated, evaluated_by_slice, intervals, slice_name
from components.example_gate.component import VERDICT_FILE
from components.example_gate.limits import Figure
from components.pretrain_example_gen.settings import EVAL, TRAIN
from components.serving_validator.component import VERDICT_FILE as SERVING_VERDICT_FILE
from components.shards import write_json
from pipeline.config import Recipe
from pipeline.lineage import Run
from pipeline.objective_parts import PARTS, Part, metric_names
from pipeline.run_dir import serving_dir
from pipeline.samples import sample_predictions
from pipeline.served_versions import served_version

SUMMARY_FILE = "summary.json"
# Of more labels or sources the file and the page alone tell.
_MOST_SLICES = 10


def summarize(run: Run, recipe: Recipe, run_dir: str) -> dict[str, Any]:
    """Collects the figures of a finished run, writes `summary.json` into `run_dir`, and returns them.

    A figure that the objective does not have (`pipeline.objective_parts`) is not there.
    """
    documents = run.output("CorpusGen", "documents").uri
    examples = run.output(run.judged_examples, "examples").uri
    model = path_utils.serving_model_path(run.output("Trainer", "model").uri)
    evaluation = run.output("Evaluator", "evaluation").uri
    with open(os.path.join(documents, COUNTS_FILE), encoding="utf-8") as file:
        of_corpus = json.load(file)
    corpus = [of_corpus[split] for split in (TRAIN, EVAL)]
    with open(
        os.path.join(
            run.output(run.judged_examples.replace("PretrainExampleGen", "ExampleGate"), "verdict").uri, VERDICT_FILE
        ),
        encoding="utf-8",
    ) as file:
        data_figures = json.load(file)["figures"]
    spec = ExampleSpec.load(examples)
    metrics = evaluated(evaluation)
    samples = sample_predictions(model, documents)
    summary = {
        "run": run.id,
        "recipe": dataclasses.asdict(recipe),
        "objective": recipe.learned,
        "corpus_documents": sum(c["documents"] for c in corpus),
        "corpus_bytes": sum(c["bytes"] for c in corpus),
        "corpus_duplicates": sum(c["duplicates"] for c in corpus),
        "vocab_size": spec.vocab_size,
        "examples_train": spec.train_examples,
        "examples_eval": spec.eval_examples,
        "data_figures": data_figures,
        "unigram_perplexity": unigram_perplexity(
            spec, os.path.join(examples, f"Split-{TRAIN}", "*"), os.path.join(examples, f"Split-{EVAL}", "*")
        ),
        **{name: metrics[name] for name in metric_names(recipe.learned)},
        **_without_reading(metrics, examples),
        **outcome(run, run_dir),
        **({} if samples is None else {"samples": samples}),
    }
    write_json(os.path.join(run_dir, SUMMARY_FILE), summary)
    return summary


def outcome(run: Run, run_dir: str) -> dict[str, Any]:
    """What the gates of quality and of serving decided, what is served now, and what each stage took: of any pipeline.

    `gate_failures` has what either of them missed; those of serving begin "serving:".
    """
    evaluation, pushed = run.output("Evaluator", "evaluation").uri, run.output("ModelPush", "pushed_model").properties
    serving_file = os.path.join(run.output("ServingValidator", "blessing").uri, SERVING_VERDICT_FILE)
    with open(serving_file, encoding="utf-8") as file:
        serving = json.load(file)
    served = served_version(serving_dir(run_dir))
    return {
        # Serving is tried only with what has the quality.
        "blessed": serving["blessed"],
        "gate_failures": gate_failures(evaluation) + [f"serving: {problem}" for problem in serving["problems"]],
        "intervals": intervals(evaluation),
        "slices": evaluated_by_slice(evaluation),
        "serving": serving,
        "pushed_version": pushed.get("pushed_version"),
        "served_version": None if served is None else str(served),
        "seconds_by_stage": {name: stage.seconds for name, stage in run.stages.items()},
        "stage_states": {name: stage.state for name, stage in run.stages.items()},
        "versions": versions(),
    }


def nsp_against_chance(accuracy: float, examples: int, random_share: float) -> dict[str, Any]:
    """How the next-sentence accuracy compares with always giving the commoner answer.

    Short documents give more random pairs than real ones (FACTS D1.4), so chance is more than one half.
    """
    chance = max(random_share, 1.0 - random_share)
    standard_error = math.sqrt(chance * (1.0 - chance) / max(1, examples))
    return {
        "nsp_chance": chance,
        "nsp_standard_error": standard_error,
        "nsp_above_chance": accuracy > chance + 2.0 * standard_error,
    }


def gate_failures(evaluation: str) -> list[str]:
    """Each threshold that was missed, in words: metric, of which part, kind of threshold, value, what was asked."""
    result = tfma.load_validation_result(evaluation)
    failures = [
        _in_words(failure, tfma.slicer.deserialize_slice_key(of_slice.slice_key))
        for of_slice in result.metric_validations_per_slice
        for failure in of_slice.failures
    ]
    missing = [slice_name(key) for spec in result.missing_slices for key in spec.feature_values.items()]
    return failures + [f"no held-out rows are of {by} {of}, which has a threshold" for by, of in missing]


def _in_words(failure, key: tuple) -> str:
    value = failure.metric_value.double_value.value
    name = " of ".join([failure.metric_key.name, *(f"{by} {of}" for by, of in map(slice_name, key))])
    if failure.metric_key.is_diff:
        change = failure.metric_threshold.change_threshold
        relative = change.HasField("relative")
        share, by = change.relative.value, change.absolute.value
        asked = f"at most {share:+.1%} of its value" if relative else f"at least {by:+g}"
        return f"{name}: change against the last blessed model {value:+.4g} ({asked} is asked)"
    threshold = failure.metric_threshold.value_threshold
    asked = (
        f"at least {threshold.lower_bound.value:g}"
        if threshold.HasField("lower_bound")
        else f"at most {threshold.upper_bound.value:g}"
    )
    return f"{name}: value {value:.4g} ({asked} is asked)"


def versions() -> dict[str, str]:
    """What made the run."""
    packages = ("bert-tfx", "tfx", "tensorflow", "keras", "apache-beam", "tensorflow-text", "tokenizers")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def print_summary(summary: dict[str, Any], run_dir: str) -> None:
    """One screen."""
    rows = {
        "corpus": f"{summary['corpus_documents']:,} documents, {summary['corpus_bytes'] / 1e6:.1f} MB",
        "vocabulary": f"{summary['vocab_size']:,} word pieces",
        "examples": f"{summary['examples_train']:,} to train, {summary['examples_eval']:,} held out",
        "data": data_line(summary["data_figures"]),
        **{part.name: _learned(part, summary) for part in PARTS[summary["objective"]]},
        **outcome_rows(summary),
        "report": os.path.join(run_dir, "report.html"),
    }
    print_rows(rows)


def _learned(part: Part, summary: Mapping[str, Any]) -> str:
    """The figures of a part, and what they are beside those of not reading the text."""
    accuracy = f"{summary[f'{part.key}_accuracy']:.1%}"
    if part.key == "nsp":
        told = "learned" if summary["nsp_above_chance"] else "NOT above chance by two standard errors"
        return f"{accuracy} (chance {summary['nsp_chance']:.1%} ± {summary['nsp_standard_error']:.1%}): {told}"
    if part.key == "disc":
        least = f"at least {summary['disc_least_original']:.1%} if all were called original"
        return f"loss {summary['disc_loss']:.3f}; accuracy {accuracy} ({least})"
    unigram, perplexity = summary["unigram_perplexity"], summary[f"{part.key}_perplexity"]
    return (
        f"perplexity {perplexity:.1f}, 1/{unigram / perplexity:.1f} of the unigram model's {unigram:.1f}; "
        f"accuracy {accuracy}"
    )


def outcome_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """`outcome` for people."""
    pushed = f"version {summary['pushed_version']}" if summary["pushed_version"] else "nothing"
    return {
        "gate": "blessed" if summary["blessed"] else "NOT blessed: " + "; ".join(summary["gate_failures"]),
        **_interval_rows(summary),
        **_serving_row(summary["serving"]),
        "pushed": f"{pushed}; serving {summary['served_version'] or 'nothing'}",
        "stages": _stage_line(summary),
    }


def _interval_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """How sure the figures are, and what they are of each part."""
    rows = {}
    if summary["intervals"]:
        said = (f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in summary["intervals"].items())
        rows["95 % sure"] = ", ".join(said)
    counts = Counter(part["by"] for part in summary["slices"])
    for part in (part for part in summary["slices"] if counts[part["by"]] <= _MOST_SLICES):
        metrics = part["metrics"]
        scores = ", ".join(f"{name} {metrics[name]:.4g}" for name in metrics if name != "example_count")
        rows[f"{part['by']} {part['of']}"] = f"{scores} ({metrics['example_count']:,.0f} rows)"
    return rows


def _serving_row(verdict: Mapping[str, Any]) -> dict[str, str]:
    """What the ServingValidator measured; nothing where it did not come so far."""
    if not verdict["answers"]:
        return {}
    name, slowest = max(verdict["latency_ms"].items(), key=lambda item: item[1])
    answers = f"{verdict['answers']} answers{' as trained' if verdict['blessed'] else ''}"
    return {
        "serving": f"{answers}, 95 % within {slowest:.3g} ms ({name}); {verdict['memory_mb']:.0f} MiB; "
        f"loaded in {verdict['load_seconds']:.1f} s"
    }


def print_rows(rows: Mapping[str, str]) -> None:
    """Names and what is said of them, a line each."""
    table = Table(show_header=False, box=None, padding=(0, 2))
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/bold]", text)
    Console(highlight=False, soft_wrap=True).print(table)


def data_line(figures: Sequence[Mapping[str, Any]]) -> str:
    """The figures that the data gate judged, as `verdict.json` has them."""
    all_figures = (Figure(**figure) for figure in figures)
    return ", ".join(f"{f.label} {f.text(f.value)}" for f in all_figures if f.value is not None)


def _stage_line(summary: Mapping[str, Any]) -> str:
    """Which stages took how long, and how many came from the cache."""
    states, seconds = summary["stage_states"], summary["seconds_by_stage"]
    cached = sum(state == "CACHED" for state in states.values())
    slow = [f"{name} {seconds[name]:.0f} s" for name in states if seconds[name] >= 1 and states[name] != "CACHED"]
    return ", ".join(slow + ([f"{cached} of {len(states)} cached"] if cached else []))


def _without_reading(metrics: Mapping[str, float], examples: str) -> dict[str, Any]:
    """What knowing only the shares would reach, where a part of the objective is a choice of two.

    At most the masked tokens are replaced for ELECTRA's discriminator, so at least the others are original.
    """
    with open(os.path.join(examples, EXAMPLE_SPEC_FILE), encoding="utf-8") as file:
        counts = json.load(file)["counts"][EVAL]
    if "nsp_accuracy" in metrics:
        sequences = counts["sequences"]
        return nsp_against_chance(metrics["nsp_accuracy"], sequences, counts["random_next"] / max(1, sequences))
    if "disc_accuracy" in metrics:
        return {"disc_least_original": 1.0 - counts["masked"] / max(1, counts["real_tokens"])}
    return {}
