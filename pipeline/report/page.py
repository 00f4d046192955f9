"""`report.html`: one self-contained page a run, from its summary, its artifacts and ML Metadata."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jinja2

from bert_keras.errors import InputError
from pipeline.objective_parts import PARTS
from pipeline.report import curves, data_gate, gate, lineage_graph

if TYPE_CHECKING:
    from pipeline.lineage import Run

REPORT_FILE = "report.html"
SUMMARY_FILE = "summary.json"
# Of the learned pieces, the first (frequent fragments) and the last (whole words) tell what was learned from.
PIECES_SHOWN = 24
# Longer pieces share the last bar.
LONGEST_BAR = 14


def write_report(run_dir: str) -> str:
    """Writes `report.html` of the newest run into `run_dir`, and returns its path.

    The page is there whole or not at all, and the same run gives the same bytes.

    Raises:
        InputError: no run has finished there, or its files are gone.
    """
    try:
        summary = _load(run_dir, SUMMARY_FILE)
    except FileNotFoundError as error:
        raise InputError(
            f"{run_dir}: no finished run here (it has no {SUMMARY_FILE}); bert-tfx pretrain makes one"
        ) from error
    if "task" in summary:
        raise InputError(f"{run_dir}: is a fine-tuning, which has no page: its figures are in {SUMMARY_FILE} there")
    if "objective" not in summary:
        raise InputError(
            f"{run_dir}: its {SUMMARY_FILE} is of an earlier version; "
            "the same bert-tfx pretrain command writes it again"
        )
    # TFX takes seconds to import; a wrong directory is told at once.
    from pipeline.lineage import latest_run

    run = latest_run(run_dir)
    if run.id != summary["run"]:
        raise InputError(
            f"{run_dir}: run {run.id} has not finished ({SUMMARY_FILE} is of {summary['run']}); "
            "the same bert-tfx pretrain command goes on with it"
        )
    try:
        page = render(run, summary, run_dir, _baseline_metrics(run))
    except FileNotFoundError as error:
        raise InputError(
            f"{error.filename}: a file of run {run.id} is gone; bert-tfx pretrain with a new --run-dir makes a new one"
        ) from error
    path = os.path.join(run_dir, REPORT_FILE)
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(page)
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    return path


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
    model_run = run.output("Trainer", "model_run").uri
    spec = _load(examples, "example_spec.json")
    with open(os.path.join(vocabulary, "vocab.txt"), encoding="utf-8") as file:
        pieces = file.read().splitlines()
    rows = gate.gate_rows(summary, baseline)
    fingerprint = str(run.stages["CorpusGen"].properties["fingerprint"])
    boxes = lineage_graph.nodes(run, summary, fingerprint, spec)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(os.path.dirname(__file__)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": lambda n: f"{n:,}",
        "percent": _percent,
        "seconds": _seconds,
        "megabytes": _megabytes,
    }
    return environment.get_template("page.html").render(
        summary=summary,
        verdict=gate.verdict(summary, rows),
        gate_rows=rows,
        parts=PARTS[summary["objective"]],
        pictures=curves.pictures(model_run, summary),
        evaluations=curves.held_out(model_run),
        data_rows=data_gate.data_rows(summary["data_figures"]),
        samples=_samples(summary, set(pieces)) if "samples" in summary else None,
        corpus=_load(documents, "corpus.json"),
        vocabulary=_load(vocabulary, "vocab_spec.json"),
        pieces=_pieces(pieces),
        spec=spec,
        stages=_stages(run),
        drawings=[lineage_graph.draw(boxes, layout) for layout in lineage_graph.LAYOUTS],
        box_height=lineage_graph.BOX_HEIGHT,
        artifacts=[(box, lineage_graph.relative(box.artifact.uri, run_dir)) for box in boxes if box.artifact],
        fingerprint=fingerprint,
        settings=_flat(summary["recipe"]),
    )


def _load(directory: str, name: str) -> Any:
    with open(os.path.join(directory, name), encoding="utf-8") as file:
        return json.load(file)


def _baseline_metrics(run: Run) -> dict[str, float] | None:
    """What the gate measured of the last blessed model, if it had one to compare with."""
    if not run.stages["Evaluator"].inputs.get("baseline_model"):
        return None
    from components.evaluator.results import BASELINE, evaluated

    return evaluated(run.output("Evaluator", "evaluation").uri, BASELINE)


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


def _stages(run: Run) -> list[dict[str, Any]]:
    longest = max((stage.seconds for stage in run.stages.values()), default=0) or 1
    return [
        {"name": s.name, "seconds": s.seconds, "share": s.seconds / longest, "state": s.state.lower()}
        for s in run.stages.values()
    ]


def _flat(recipe: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Dotted names and values, as `--set` takes them."""
    rows: list[tuple[str, Any]] = []
    for name, value in recipe.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(prefix + name, value)]
    return rows


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}%"


def _seconds(seconds: float) -> str:
    """0.03 s, 12.3 s, 4 min 05 s"""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    return f"{int(seconds + 0.5) // 60} min {int(seconds + 0.5) % 60:02d} s"


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.2f} MB"
