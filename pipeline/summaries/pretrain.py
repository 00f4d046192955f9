"""Figures of a pre-training, for `summary.json` and the screen."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tfx.utils import path_utils

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, SOURCE, ExampleSpec
from bert_keras.objectives.table import PARTS, Part, bounds_of, perplexity_text
from bert_keras.training.config import BUDGET_FILE, with_steps
from bert_keras.training.mixed_examples import mixtures, source_figures
from bert_keras.training.phases import ExampleSet, phases_of
from components.corpus_gen.record.card import COUNTS_FILE, READ
from components.evaluator.chance import STANDARD_ERRORS
from components.evaluator.results import (
    BASELINE,
    chances,
    evaluated,
    evaluated_by_slice,
    pair_figures,
    teacher_figures,
    word_figures,
)
from components.evaluator.settings import SLICED_BY
from components.evaluator.word_perplexity import tokens_per_word, word_perplexity
from components.example_gate.component import VERDICT_FILE
from components.example_gate.limits import Figure
from components.io.shards import read_json
from components.pretrain_example_gen.settings import EVAL, TRAIN
from pipeline import stages
from pipeline.recipes.settings import Recipe
from pipeline.runs.lineage import ArtifactRecord, Run
from pipeline.runs.spec import InitialFiles
from pipeline.summaries.fill_mask_samples import sample_predictions


def figures(run: Run, recipe: Recipe, initial: InitialFiles | None) -> dict[str, Any]:
    """The figures of a finished run; those that the objective does not have are left out."""
    documents = run.output(stages.CORPUS_GEN, stages.DOCUMENTS).uri
    phase = recipe.judged_phase
    examples = run.output(stages.PRETRAIN_EXAMPLE_GEN + phase, stages.EXAMPLES).uri
    verdict = run.output(stages.EXAMPLE_GATE + phase, stages.VERDICT).uri
    model = path_utils.serving_model_path(run.output(stages.TRAINER, stages.MODEL).uri)
    evaluation = run.output(stages.EVALUATOR, stages.EVALUATION).uri
    counts = read_json(os.path.join(documents, COUNTS_FILE))
    corpus = [counts[split] for split in (TRAIN, EVAL)]
    spec = ExampleSpec.load(examples)
    trained_on = run.stages[stages.TRAINER].inputs[stages.EXAMPLES]
    objective = recipe.pretraining_objective
    metrics, (first, *_) = evaluated(evaluation), PARTS[objective]
    recipe, budget = with_budget(recipe, run.output(stages.TRAINER, stages.MODEL_RUN).uri)
    samples = sample_predictions(model, documents, recipe.vocabulary.algorithm)
    return {
        "recipe": dataclasses.asdict(recipe),
        "objective": objective,
        "phase": phase,
        "corpus_documents": sum(c["documents"] for c in corpus),
        "corpus_bytes": sum(c["bytes"] for c in corpus),
        "corpus_duplicates": sum(c["duplicates"] for c in corpus),
        "corpus_read_before": counts[READ].get("read_before", 0),
        "vocab_size": spec.vocab_size,
        "examples_train": spec.train_examples,
        "examples_eval": spec.eval_examples,
        "sources": [
            source | _by_word(source["name"], evaluation, examples, f"{first.key}_perplexity")
            for source in read_by_source([artifact.uri for artifact in trained_on], recipe)
        ],
        "data_figures": read_json(os.path.join(verdict, VERDICT_FILE))["figures"],
        "unigram_perplexity": chances(evaluation)[f"{first.key}_perplexity"][0],
        **{name: metrics[name] for name in bounds_of(objective)},
        **_least_original(metrics, examples),
        **budget,
        **_initial_model(run, initial, evaluation),
        **_word_perplexity(run, evaluation, examples, f"{first.key}_perplexity"),
        **({"minimal_pairs": pairs} if (pairs := pair_figures(evaluation)) else {}),
        **({"teacher": teacher} if (teacher := teacher_figures(evaluation)) else {}),
        **({} if samples is None else {"samples": samples}),
    }


def with_budget(recipe: Recipe, model_run: str) -> tuple[Recipe, dict[str, Any]]:
    """The recipe with the steps of a run and `{"budget": ...}`; with no budget both are as before, `{}`."""
    if recipe.training.budget is None:
        return recipe, {}
    account = read_json(os.path.join(model_run, BUDGET_FILE))
    training, second = with_steps(recipe.training, recipe.second_phase, account["num_train_steps"])
    return dataclasses.replace(recipe, training=training, second_phase=second), {"budget": account}


def budget_line(budget: Mapping[str, Any]) -> str:
    """The budget on the screen and on the page."""
    return (
        f"{budget['budget']}: {budget['num_train_steps']:,} steps, {budget['used']:.4g} of {budget['limit']:.4g} "
        f"{budget['unit']} used ({budget['used'] / budget['limit']:.1%})"
    )


def _is_baseline(initial: ArtifactRecord, run: Run) -> bool:
    return any(model.id == initial.id for model in run.stages[stages.EVALUATOR].inputs.get(stages.BASELINE_MODEL, []))


def _word_perplexity(run: Run, evaluation: str, examples: str, perplexity: str) -> dict[str, Any]:
    """Perplexities per word of the initial model (None: it has no head to be scored with) and the new one."""
    if (initial := run.initial_model) is None:
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


def _by_word(source: str, evaluation: str, examples: str, perplexity: str) -> dict[str, float]:
    """The perplexity per word of a source's held-out text; empty if there is none, as of replayed text."""
    for part in evaluated_by_slice(evaluation):
        if (part["by"], part["of"]) == (SLICED_BY[SOURCE], source):
            loss, tokens = math.log(part["metrics"][perplexity]), tokens_per_word(examples, source)
            return {"word_perplexity": word_perplexity(loss, tokens)}
    return {}


def _initial_model(run: Run, files: InitialFiles | None, evaluation: str) -> dict[str, Any]:
    """The initial model, and its metrics if it was the baseline; empty without one."""
    model = run.initial_model
    if model is None or files is None:
        return {}
    return {
        "initial_model": {
            **dataclasses.asdict(files),
            **{name: model.properties[name] for name in ("kept", "drawn", "new_tokens")},
            "metrics": evaluated(evaluation, BASELINE) if _is_baseline(model, run) else None,
        }
    }


def rows(summary: Mapping[str, Any]) -> dict[str, str]:
    """The rows of `figures` on the screen."""
    before = summary["corpus_read_before"]
    shown = {
        "corpus": f"{summary['corpus_documents']:,} documents, {summary['corpus_bytes'] / 1e6:.1f} MB"
        + (f"; {before:,} read before, left out" if before else "")
    }
    if "initial_model" in summary:
        shown["initial model"] = initial_row(summary)
    shown["vocabulary"] = f"{summary['vocab_size']:,} word pieces"
    shown["examples"] = f"{summary['examples_train']:,} to train, {summary['examples_eval']:,} held out"
    if summary["sources"]:
        shown["sources"] = source_line(summary["sources"])
    shown["data"] = data_line(summary["data_figures"])
    if "budget" in summary:
        shown["budget"] = budget_line(summary["budget"])
    shown |= {part.name: _learned(part, summary) for part in PARTS[summary["objective"]]}
    if words := summary.get("word_perplexity"):
        names = {"held_out": "held out", "reference": "on the reference corpus"}
        shown["per word"] = "; ".join(
            f"perplexity {perplexity_text(scores['model'])} {name}"
            + (f" (initial model: {perplexity_text(scores['initial_model'])})" if scores["initial_model"] else "")
            for name, scores in ((name, words[key]) for key, name in names.items() if key in words)
            if scores["model"]
        )
    if pairs := summary.get("minimal_pairs"):
        overall, (low, high) = pairs["overall"], pairs["overall"]["interval"]
        worst, scores = min(pairs["phenomena"].items(), key=lambda item: item[1]["accuracy"])
        share = f"{overall['accuracy']:.1%} of {overall['pairs']:,} right (95% CI {low:.1%} to {high:.1%})"
        shown["minimal pairs"] = f"{share}; lowest: {worst}, {scores['accuracy']:.1%}"
    if teacher := summary.get("teacher"):
        accuracy, perplexity = (teacher["scores"][name] for name in ("mlm_accuracy", "mlm_perplexity"))
        share = f", of which the model has {(teacher['model'] or 0.0) / accuracy:.1%}" if accuracy else ""
        facts = f"accuracy {accuracy:.1%}{share}; perplexity {perplexity_text(perplexity)}"
        shown["teacher"] = f"{teacher['folder']}; {facts}"
    return shown


def initial_row(summary: Mapping[str, Any]) -> str:
    """The initial model in a line: its folder, what is kept of it, and its first metric."""
    initial, (first, *_) = summary["initial_model"], PARTS[summary["objective"]]
    facts = [f"{initial['source']}; kept: {initial['kept']}"]
    facts += [f"drawn: {initial['drawn']}"] if initial["drawn"] else []
    facts += [f"{initial['new_tokens']:,} new tokens"] if initial["new_tokens"] else []
    if initial["metrics"]:
        facts.append(f"perplexity {perplexity_text(initial['metrics'][f'{first.key}_perplexity'])}")
    return "; ".join(facts)


def _learned(part: Part, summary: Mapping[str, Any]) -> str:
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


def data_line(figures: Sequence[Mapping[str, Any]]) -> str:
    """The figures of all text that the data gate evaluated, from `verdict.json`."""
    all_figures = (Figure(**figure) for figure in figures)
    return ", ".join(f"{f.label} {f.text(f.value)}" for f in all_figures if f.value is not None and not f.source)


def _least_original(metrics: Mapping[str, float], examples: str) -> dict[str, Any]:
    """Least accuracy of ELECTRA's discriminator if it called all tokens original: at most the masked are replaced."""
    if "disc_accuracy" not in metrics:
        return {}
    counts = read_json(os.path.join(examples, EXAMPLE_SPEC_FILE))["counts"][EVAL]
    return {"disc_least_original": 1.0 - counts["masked"] / max(1, counts["real_tokens"])}


def read_by_source(folders: Sequence[str], recipe: Recipe) -> list[dict[str, Any]]:
    """The figures of each source (`bert_keras.training.mixed_examples.SourceFigures`) in each phase, by length.

    Empty if nothing is mixed. `folders` are the examples that the Trainer read.
    """
    examples = mixtures({folder: ExampleSet.load(folder) for folder in folders}, recipe.training)
    phases = phases_of(recipe.training, recipe.second_phase, examples)
    return [
        {"max_seq_length": example_set.max_seq_length, **figures._asdict()}
        for example_set in examples
        for figures in source_figures(phases, example_set)
        if len(example_set.sources) > 1
    ]


def source_line(sources: Sequence[Mapping[str, Any]]) -> str:
    """The sources on the screen: their shares, and how often each was read."""
    lengths = {source["max_seq_length"] for source in sources}
    return ", ".join(
        f"{source['name'] or 'corpus'} {source['share']:.1%}, read {source['read'] / source['one_pass']:.2g} times"
        + (f" in {source['max_seq_length']} tokens" if len(lengths) > 1 else "")
        for source in sources
    )
