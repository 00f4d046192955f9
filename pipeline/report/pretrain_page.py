"""The page of a pre-training."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.objective_parts import PARTS, Part
from pipeline.report import curves, data_gate, gate
from pipeline.report.frame import Evaluations, Frame, load, percent
from pipeline.report.frame import render as render_frame
from pipeline.report.pretrain_lineage import pretrain_lineage
from pipeline.report.slice_table import Column, slice_table

if TYPE_CHECKING:
    from pipeline.lineage import Run

# Of the learned pieces, the first (frequent fragments) and the last (whole words) tell what was learned from.
PIECES_SHOWN = 24
# Longer pieces share the last bar.
LONGEST_BAR = 14


def render(run: Run, summary: Mapping[str, Any], run_dir: str, baseline: Mapping[str, float] | None) -> str:
    """The page's HTML.

    Args:
        run: of `pipeline.lineage.latest_run`.
        summary: of `summary.json`.
        run_dir: no path above it is shown.
        baseline: metrics of the model that the gate compared with, or None.
    """
    documents, vocabulary, examples = (
        run.output(stage, key).uri
        for stage, key in (("CorpusGen", "documents"), ("VocabGen", "vocabulary"), (run.judged_examples, "examples"))
    )
    spec = load(examples, "example_spec.json")
    with open(os.path.join(vocabulary, "vocab.txt"), encoding="utf-8") as file:
        pieces = file.read().splitlines()
    log, parts = curves.read_log(run.output("Trainer", "model_run").uri), PARTS[summary["objective"]]
    frame = Frame(
        gate_rows=gate.gate_rows(summary, baseline),
        judged_on=f"{summary['examples_eval']:,} held-out examples",
        pictures=curves.pictures(log, curves.of_objective(summary)),
        evaluations=_evaluations(curves.held_out(log), parts),
        lineage=pretrain_lineage(run, summary, spec, run_dir),
        slices=slice_table(summary, "Examples", "Lengths are in tokens, without padding.", _slice_columns(parts)),
        reference="without reading the text",
    )
    return render_frame(
        "pretrain.html",
        run,
        summary,
        frame,
        parts=parts,
        data_rows=data_gate.data_rows(summary["data_figures"]),
        samples=_samples(summary, set(pieces)) if "samples" in summary else None,
        corpus=load(documents, "corpus.json"),
        vocabulary=load(vocabulary, "vocab_spec.json"),
        pieces=_pieces(pieces),
        spec=spec,
    )


def _evaluations(lines: curves.Log, parts: Sequence[Part]) -> Evaluations:
    titles = ["Step"]
    rows = [[f"{line['step']:,}"] for line in lines]
    for part in parts:
        read = "perplexity" in part.metrics
        titles += [f"{part.title} loss", *["Perplexity"] * read, f"{part.title} accuracy"]
        for row, line in zip(rows, lines, strict=True):
            loss = line[f"{part.key}_loss"]
            row += [f"{loss:.3f}", *[f"{math.exp(loss):,.1f}"] * read, percent(line[f"{part.key}_accuracy"])]
    caption = (
        f"{len(lines)} evaluations; losses in nats. In training an evaluation may read a part of the held-out split; "
        "the gate reads all of it."
    )
    return Evaluations(caption, titles, rows)


def _slice_columns(parts: Sequence[Part]) -> dict[str, Column]:
    forms = {"accuracy": percent, "perplexity": "{:,.1f}".format, "loss": "{:.3f}".format}
    return {
        f"{part.key}_{figure}": Column(f"{part.title} {figure}", forms[figure])
        for part in parts
        for figure in part.metrics
    }


def _samples(summary: Mapping[str, Any], pieces: set[str]) -> list[dict[str, Any]]:
    """The sentence before and after the mask, and which guess is the hidden word."""
    lower_case = summary["recipe"]["vocabulary"]["lower_case"]
    samples = []
    for sample in summary["samples"]:
        before, _, after = sample["text"].partition("[MASK]")
        word = sample["masked_word"].lower() if lower_case else sample["masked_word"]
        guesses = [(token, score, token == word) for token, score in sample["predictions"]]
        samples.append(
            {
                "before": before,
                "after": after,
                "word": sample["masked_word"],
                "guesses": guesses,
                "hit": any(hit for _, _, hit in guesses),
                "one_piece": word in pieces,
            }
        )
    return samples


def _pieces(pieces: Sequence[str]) -> dict[str, Any]:
    """What was learned: pieces longer than a character, in the order in which they were merged; and all lengths."""
    learned = [p for p in pieces if len(p.removeprefix("##")) > 1 and not (p[0] == "[" and p[-1] == "]")]
    lengths = Counter(min(len(p.removeprefix("##")), LONGEST_BAR) for p in learned)
    return {
        "first": learned[:PIECES_SHOWN],
        "last": learned[PIECES_SHOWN:][-PIECES_SHOWN:],
        "continuing": sum(p.startswith("##") for p in pieces),
        "lengths": [(n, lengths[n]) for n in range(2, LONGEST_BAR + 1)],
        "most": max(lengths.values(), default=1),
        "longest": LONGEST_BAR,
    }
