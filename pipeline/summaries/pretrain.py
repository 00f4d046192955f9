"""Summary of a pre-training: `summary.json`, and one screen."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from tfx.utils import path_utils

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, ExampleSpec
from bert_keras.objectives.table import PARTS, Part, bounds_of, perplexity_text
from components.corpus_gen.record.counts_file import COUNTS_FILE, READ
from components.evaluator.chance import STANDARD_ERRORS
from components.evaluator.results import (
    BASELINE,
    chances,
    evaluated,
    evaluated_by_slice,
    gate_failures,
    intervals,
    pair_figures,
    word_figures,
)
from components.evaluator.word_perplexity import tokens_per_word, word_perplexity
from components.example_gate.component import VERDICT_FILE
from components.example_gate.limits import Figure
from components.io.shards import read_json, write_json
from components.pretrain_example_gen.settings import EVAL, TRAIN
from components.serving_validator.component import VERDICT_FILE as SERVING_VERDICT_FILE
from pipeline import stages
from pipeline.recipes.settings import Recipe
from pipeline.runs.lineage import ArtifactRecord, Run
from pipeline.runs.notices import notices_of
from pipeline.runs.run_dir import REPORT_FILE, SUMMARY_FILE, serving_dir
from pipeline.runs.served_versions import served_version
from pipeline.summaries.advice import advice
from pipeline.summaries.budget import budget_line, with_budget
from pipeline.summaries.fill_mask_samples import sample_predictions
from pipeline.summaries.gate_failures import reasons
from pipeline.summaries.sources import read_by_source, source_line

# With more labels or sources, only the file and the page list the slices.
_MOST_SLICES = 10


def summarize(run: Run, recipe: Recipe, run_dir: str) -> dict[str, Any]:
    """Collect the figures of a finished run, write them to `summary.json` in `run_dir`, and return them.

    Figures that the objective does not have (`bert_keras.objectives.table`) are left out.
    """
    documents = run.output(stages.CORPUS_GEN, stages.DOCUMENTS).uri
    phase = recipe.judged_phase
    examples = run.output(stages.of_phase(stages.PRETRAIN_EXAMPLE_GEN, phase), stages.EXAMPLES).uri
    verdict = run.output(stages.of_phase(stages.EXAMPLE_GATE, phase), stages.VERDICT).uri
    model = path_utils.serving_model_path(run.output(stages.TRAINER, stages.MODEL).uri)
    evaluation = run.output(stages.EVALUATOR, stages.EVALUATION).uri
    of_corpus = read_json(os.path.join(documents, COUNTS_FILE))
    corpus = [of_corpus[split] for split in (TRAIN, EVAL)]
    spec = ExampleSpec.load(examples)
    trained_on = run.stages[stages.TRAINER].inputs[stages.EXAMPLES]
    objective = recipe.pretraining_objective
    metrics, found, (first, *_) = evaluated(evaluation), chances(evaluation), PARTS[objective]
    recipe, budget = with_budget(recipe, run.output(stages.TRAINER, stages.MODEL_RUN).uri, f"{first.key}_loss")
    samples = sample_predictions(model, documents, recipe.vocabulary.algorithm)
    summary = {
        "run": run.id,
        "workflow": recipe.workflow,
        "recipe": dataclasses.asdict(recipe),
        "objective": objective,
        "phase": phase,
        "corpus_documents": sum(c["documents"] for c in corpus),
        "corpus_bytes": sum(c["bytes"] for c in corpus),
        "corpus_duplicates": sum(c["duplicates"] for c in corpus),
        "corpus_read_before": of_corpus[READ].get("read_before", 0),
        "vocab_size": spec.vocab_size,
        "examples_train": spec.train_examples,
        "examples_eval": spec.eval_examples,
        "sources": read_by_source([one.uri for one in trained_on], recipe),
        "data_figures": read_json(os.path.join(verdict, VERDICT_FILE))["figures"],
        "unigram_perplexity": found[f"{first.key}_perplexity"][0],
        **{name: metrics[name] for name in bounds_of(objective)},
        **_least_original(metrics, examples),
        **budget,
        **_initial_model(run, evaluation),
        **_word_perplexity(run, evaluation, examples, f"{first.key}_perplexity"),
        **({"minimal_pairs": pairs} if (pairs := pair_figures(evaluation)) else {}),
        **outcome(run, run_dir),
        **({} if samples is None else {"samples": samples}),
    }
    write_json(os.path.join(run_dir, SUMMARY_FILE), summary)
    return summary


def _is_baseline(initial: ArtifactRecord, run: Run) -> bool:
    return any(model.id == initial.id for model in run.stages[stages.EVALUATOR].inputs.get(stages.BASELINE_MODEL, []))


def _word_perplexity(run: Run, evaluation: str, examples: str, perplexity: str) -> dict[str, Any]:
    """The initial model's and the new one's perplexity per word, held out and on the reference corpus if there is one.

    Empty without an initial model; a figure of the initial model is None if it has no head to be scored with.
    """
    initial = run.initial_model
    if initial is None:
        return {}
    tokens = tokens_per_word(examples)
    held_out = {
        "tokens_per_word": tokens,
        "initial_model": None,
        "model": word_perplexity(math.log(evaluated(evaluation)[perplexity]), tokens),
    }
    if _is_baseline(initial, run):
        held_out["initial_model"] = word_perplexity(math.log(evaluated(evaluation, BASELINE)[perplexity]), tokens)
    figures = word_figures(evaluation)
    return {"word_perplexity": {**figures, "held_out": {**held_out, **figures.get("held_out", {})}}}


def _initial_model(run: Run, evaluation: str) -> dict[str, Any]:
    """The initial model, and its metrics if it was the baseline; empty without one."""
    initial = run.initial_model
    if initial is None:
        return {}
    source = run.output(stages.INITIAL_SOURCE, stages.IMPORTED)
    return {
        "initial_model": {
            "source": source.uri,
            **{name: source.properties.get(name, "") for name in ("sha256", "licence")},
            **{name: initial.properties[name] for name in ("kept", "drawn", "new_tokens")},
            "metrics": evaluated(evaluation, BASELINE) if _is_baseline(initial, run) else None,
        }
    }


def outcome(run: Run, run_dir: str) -> dict[str, Any]:
    """Results of both gates, the served version, and the time of each stage, for any workflow.

    `gate_failures` lists the missed thresholds of quality (`components.evaluator.gate_failures`), `serving` the
    problems found by the ServingValidator.
    """
    evaluation = run.output(stages.EVALUATOR, stages.EVALUATION).uri
    pushed = run.output(stages.MODEL_PUSH, stages.PUSHED_MODEL).properties
    serving_file = os.path.join(run.output(stages.SERVING_VALIDATOR, stages.BLESSING).uri, SERVING_VERDICT_FILE)
    serving = read_json(serving_file)
    served = served_version(serving_dir(run_dir))
    return {
        # The ServingValidator only tests models that pass the quality gate.
        "blessed": serving["blessed"],
        "gate_failures": [dataclasses.asdict(failure) for failure in gate_failures(evaluation)],
        "intervals": intervals(evaluation),
        "chances": chances(evaluation),
        "slices": evaluated_by_slice(evaluation),
        "serving": serving,
        "pushed_version": pushed.get("pushed_version"),
        "served_version": None if served is None else str(served),
        "seconds_by_stage": {name: stage.seconds for name, stage in run.stages.items()},
        "stage_states": {name: stage.state for name, stage in run.stages.items()},
        "versions": versions(),
        "notices": notices_of(run, run_dir),
    }


def versions() -> dict[str, str]:
    """Versions of Python and of the main packages."""
    packages = ("bert-tfx", "tfx", "tensorflow", "keras", "apache-beam", "tensorflow-text", "tokenizers")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in packages}}


def print_summary(summary: dict[str, Any], run_dir: str) -> None:
    """Print the summary on one screen."""
    before = summary["corpus_read_before"]
    rows = {
        "corpus": f"{summary['corpus_documents']:,} documents, {summary['corpus_bytes'] / 1e6:.1f} MB"
        + (f"; {before:,} read before, left out" if before else ""),
        **({"initial model": _initial_row(summary)} if "initial_model" in summary else {}),
        "vocabulary": f"{summary['vocab_size']:,} word pieces",
        "examples": f"{summary['examples_train']:,} to train, {summary['examples_eval']:,} held out",
        **({"sources": source_line(summary["sources"])} if summary["sources"] else {}),
        "data": data_line(summary["data_figures"]),
        **({"budget": budget_line(summary["budget"])} if "budget" in summary else {}),
        **{part.name: _learned(part, summary) for part in PARTS[summary["objective"]]},
        **({"per word": _per_word(summary["word_perplexity"])} if "word_perplexity" in summary else {}),
        **({"minimal pairs": _pair_row(summary["minimal_pairs"])} if "minimal_pairs" in summary else {}),
        **outcome_rows(summary),
        "report": os.path.join(run_dir, REPORT_FILE),
    }
    print_rows(rows)


def _initial_row(summary: Mapping[str, Any]) -> str:
    initial, (first, *_) = summary["initial_model"], PARTS[summary["objective"]]
    facts = [f"{initial['source']}; kept: {initial['kept']}"]
    facts += [f"drawn: {initial['drawn']}"] if initial["drawn"] else []
    facts += [f"{initial['new_tokens']:,} new tokens"] if initial["new_tokens"] else []
    if initial["metrics"]:
        facts.append(f"perplexity {perplexity_text(initial['metrics'][f'{first.key}_perplexity'])}")
    return "; ".join(facts)


def _pair_row(figures: Mapping[str, Any]) -> str:
    """The accuracy of all pairs, and the phenomenon with the lowest."""
    overall, (low, high) = figures["overall"], figures["overall"]["interval"]
    worst, of = min(figures["phenomena"].items(), key=lambda item: item[1]["accuracy"])
    return (
        f"{overall['accuracy']:.1%} of {overall['pairs']:,} right (95% CI {low:.1%} to {high:.1%}); "
        f"lowest: {worst}, {of['accuracy']:.1%}"
    )


def _per_word(figures: Mapping[str, Any]) -> str:
    """Perplexities per word, each beside the initial model's."""
    names = {"held_out": "held out", "reference": "on the reference corpus"}
    return "; ".join(
        f"perplexity {perplexity_text(found['model'])} {name}"
        + (f" (initial model: {perplexity_text(found['initial_model'])})" if found["initial_model"] else "")
        for name, found in ((name, figures[key]) for key, name in names.items() if key in figures)
        if found["model"]
    )


def _learned(part: Part, summary: Mapping[str, Any]) -> str:
    """The metrics of one part of the objective, compared with those of not reading the text."""
    accuracy = f"{summary[f'{part.key}_accuracy']:.1%}"
    if part.guesses == 2:
        chance, above = summary["chances"][f"{part.key}_accuracy"]
        result = "learned" if above >= STANDARD_ERRORS else "NOT above chance by two standard errors"
        return f"{accuracy} (chance {chance:.1%}; {above:+.1f} standard errors): {result}"
    if part.key == "disc":
        least = f"at least {summary['disc_least_original']:.1%} if all were called original"
        return f"loss {summary['disc_loss']:.3f}; accuracy {accuracy} ({least})"
    unigram, perplexity = summary["unigram_perplexity"], summary[f"{part.key}_perplexity"]
    return (
        f"perplexity {perplexity_text(perplexity)}, 1/{unigram / perplexity:.1f} of the unigram model's {unigram:.1f}; "
        f"accuracy {accuracy}"
    )


def outcome_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """The rows of `outcome` on the screen."""
    pushed = f"version {summary['pushed_version']}" if summary["pushed_version"] else "nothing"
    return {
        "gate": "blessed" if summary["blessed"] else "NOT blessed: " + "; ".join(reasons(summary)),
        **({} if summary["blessed"] else {"to try": "; ".join(advice(summary))}),
        **_interval_rows(summary),
        **_serving_row(summary["serving"]),
        "pushed": f"{pushed}; serving {summary['served_version'] or 'nothing'}",
        "stages": _stage_line(summary),
        **{f"notice {number}": notice for number, notice in enumerate(summary["notices"], 1)},
    }


def _interval_rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """Confidence intervals, and the figures of each slice."""
    rows = {}
    if summary["intervals"]:
        intervals = (f"{name} {low:.4g} to {high:.4g}" for name, (low, high) in summary["intervals"].items())
        rows["95% CI"] = ", ".join(intervals)
    counts = Counter(part["by"] for part in summary["slices"])
    for part in (part for part in summary["slices"] if counts[part["by"]] <= _MOST_SLICES):
        metrics = part["metrics"]
        scores = ", ".join(f"{name} {metrics[name]:.4g}" for name in metrics if name != "example_count")
        rows[f"{part['by']} {part['of']}"] = f"{scores} ({metrics['example_count']:,.0f} rows)"
    return rows


def _serving_row(verdict: Mapping[str, Any]) -> dict[str, str]:
    """Measurements of the ServingValidator; no row if it did not come to measure."""
    if not verdict["answers"]:
        return {}
    name, slowest = max(verdict["latency_ms"].items(), key=lambda item: item[1])
    answers = f"{verdict['answers']} answers{' as trained' if verdict['blessed'] else ''}"
    return {
        "serving": f"{answers}, 95 % within {slowest:.3g} ms ({name}); {verdict['memory_mb']:.0f} MiB; "
        f"loaded in {verdict['load_seconds']:.1f} s"
    }


def print_rows(rows: Mapping[str, str]) -> None:
    """Print one line per row, at any terminal width, so that paths can be copied."""
    console, width = Console(highlight=False, soft_wrap=True), max(map(len, rows))
    for name, text in rows.items():
        console.print(Text.assemble("  ", (f"{name:{width}}", "bold"), "    ", text))


def data_line(figures: Sequence[Mapping[str, Any]]) -> str:
    """The figures of all text that the data gate evaluated, from `verdict.json`."""
    all_figures = (Figure(**figure) for figure in figures)
    return ", ".join(f"{f.label} {f.text(f.value)}" for f in all_figures if f.value is not None and not f.source)


def _stage_line(summary: Mapping[str, Any]) -> str:
    """Seconds of the slow stages, and the number of cached ones."""
    states, seconds = summary["stage_states"], summary["seconds_by_stage"]
    cached = sum(state == "CACHED" for state in states.values())
    slow = [f"{name} {seconds[name]:.0f} s" for name in states if seconds[name] >= 1 and states[name] != "CACHED"]
    return ", ".join(slow + ([f"{cached} of {len(states)} cached"] if cached else []))


def _least_original(metrics: Mapping[str, float], examples: str) -> dict[str, Any]:
    """Lower bound of the accuracy of ELECTRA's discriminator if it called all tokens original.

    At most the masked tokens are replaced, so at least the others are original.
    """
    if "disc_accuracy" not in metrics:
        return {}
    counts = read_json(os.path.join(examples, EXAMPLE_SPEC_FILE))["counts"][EVAL]
    return {"disc_least_original": 1.0 - counts["masked"] / max(1, counts["real_tokens"])}
