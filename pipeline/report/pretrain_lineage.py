"""The lineage of a pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.objective_parts import PARTS
from pipeline.report.lineage_graph import Layout, Lineage, Node, draw, places
from pipeline.report.outcome_nodes import baseline_node, gate_node, pushed_node

if TYPE_CHECKING:
    from pipeline.lineage import Run

LAYOUTS = (
    Layout(
        "wide", (1, 281, 561, 841), 218, 136,
        {
            "corpus": (0, 0), "examples": (1, 0), "model": (2, 0), "pushed": (3, 0),
            "vocabulary": (0, 1), "baseline": (1, 1), "gate": (2, 1),
        },
    ),
    Layout(
        "narrow", (1, 217), 182, 128,
        {
            "corpus": (0, 0), "vocabulary": (1, 0), "examples": (0, 1), "baseline": (1, 1),
            "model": (0, 2), "gate": (1, 2), "pushed": (0, 3),
        },
    ),
)  # fmt: skip
EDGES = (
    ("corpus", "vocabulary"), ("corpus", "examples"), ("vocabulary", "examples"), ("examples", "model"),
    ("examples", "gate"), ("model", "gate"), ("baseline", "gate"), ("model", "pushed"), ("gate", "pushed"),
)  # fmt: skip
DESCRIPTION = (
    "corpus to vocabulary, both to examples, examples to model, model, examples and baseline to gate, "
    "gate and model to pushed model"
)


def pretrain_lineage(run: Run, summary: Mapping[str, Any], spec: Mapping[str, Any], run_dir: str) -> Lineage:
    """The artifacts that each stage really took and gave.

    Args:
        run: of `pipeline.lineage.latest_run`.
        summary: of `summary.json`.
        spec: the examples' `example_spec.json`.
        run_dir: no path above it is shown.
    """
    fingerprint = str(run.stages["CorpusGen"].properties["fingerprint"])
    boxes = _nodes(run, summary, fingerprint, spec)
    hashes = {
        "Corpus fingerprint, of the text files' names and contents": fingerprint,
        "Vocabulary sha256, in the examples too": spec["vocabulary_sha256"],
    }
    drawings = [draw(boxes, layout, EDGES) for layout in LAYOUTS]
    return Lineage(drawings, places(boxes, run_dir), DESCRIPTION, hashes)


def _nodes(run: Run, summary: Mapping[str, Any], fingerprint: str, spec: Mapping[str, Any]) -> list[Node]:
    examples, gate = (run.stages[name] for name in (run.judged_examples, "Evaluator"))
    (corpus,), (vocabulary,) = examples.inputs["documents"], examples.inputs["vocabulary"]
    (used,), (model,) = gate.inputs["examples"], gate.inputs["model"]
    steps = summary["recipe"]["training"]["num_train_steps"]
    first, *_ = PARTS[summary["objective"]]
    return [
        Node(
            "corpus", "Corpus", "CorpusGen", corpus,
            [f"{summary['corpus_documents']:,} documents", f"fingerprint {fingerprint[:8]}"],
        ),
        Node(
            "vocabulary", "Vocabulary", "VocabGen", vocabulary,
            [f"{summary['vocab_size']:,} word pieces", f"sha256 {spec['vocabulary_sha256'][:8]}"],
        ),
        Node(
            "examples", "Examples", examples.name, used,
            [f"{summary['examples_train']:,} to train", f"{summary['examples_eval']:,} held out"],
        ),
        Node(
            "model", "Model", "Trainer", model,
            [f"{steps:,} steps", f"perplexity {summary[f'{first.key}_perplexity']:,.2f}"],
        ),
        baseline_node(run),
        gate_node(run, summary),
        pushed_node(run, summary),
    ]  # fmt: skip
