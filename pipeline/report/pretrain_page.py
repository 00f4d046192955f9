"""Report page of a pre-training."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from bert_keras.objectives.table import PARTS, Part, perplexity_text
from bert_keras.tokenizers import sentencepiece
from bert_keras.tokenizers.byte_bpe import SPACE
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.vocabulary_files import read_vocabulary
from components.corpus_gen.filters.chain import RULES
from components.corpus_gen.record.card import total
from components.corpus_gen.record.tally import ALL, FATES, KEPT
from pipeline import stages
from pipeline.report import gate
from pipeline.report.base_page import Frame, load, percent
from pipeline.report.base_page import render as render_frame
from pipeline.report.figures import curves
from pipeline.report.figures.tables import Column, Table, slice_table
from pipeline.runs.lineage import Run
from pipeline.summaries.pretrain import budget_line, initial_row

# First and last learned tokens shown: frequent fragments, and whole words that show the domain of the text.
PIECES_SHOWN = 24
# The character for the space before a token, by algorithm.
_SPACES = {"byte_bpe": SPACE, "sentencepiece": sentencepiece.SPACE}
# Longer tokens share the last bar.
LONGEST_BAR = 14
# By the source of a vocabulary (`components.vocab_gen.files`).
_ORIGINS = {
    "learned": "learned from the training split",
    "given": "given",
    "extended": "given, with words of the training split added",
}


def render(run: Run, summary: Mapping[str, Any], run_dir: str, baseline: Mapping[str, float] | None) -> str:
    """Render the page's HTML."""
    corpus = load(run.output(stages.CORPUS_GEN, stages.DOCUMENTS).uri, "corpus.json")
    vocabulary = run.output(stages.VOCAB_GEN, stages.VOCABULARY).uri
    examples = run.output(stages.PRETRAIN_EXAMPLE_GEN + summary["phase"], stages.EXAMPLES).uri
    spec = load(examples, "example_spec.json")
    pieces, made = read_vocabulary(vocabulary)
    log, parts = curves.read_log(run.output(stages.TRAINER, stages.MODEL_RUN).uri), PARTS[summary["objective"]]
    forms = {"accuracy": percent, "perplexity": perplexity_text}
    columns = {
        f"{part.key}_{figure}": Column(f"{part.title} {figure}", forms.get(figure, "{:.3f}".format))
        for part in parts
        for figure in part.metrics
    }
    summary = {**summary, **{name: math.nan for name in columns if summary[name] is None}}  # JSON has no NaN
    frame = Frame(
        gate_rows=gate.gate_rows(summary, baseline),
        judged_on=f"{summary['examples_eval']:,} held-out examples",
        pictures=curves.pictures(log, curves.of_objective(summary)),
        evaluations=_evaluations(curves.held_out(log), parts),
        slices=slice_table(summary, "Examples", "Lengths are in tokens, without padding.", columns),
        reference="without reading the text",
        settings_note=f"Initial model: {initial_row(summary)}" if "initial_model" in summary else "",
        fingerprints={"Vocabulary: sha256, in the examples too": spec["vocabulary_sha256"]},
    )
    return render_frame(
        "pretrain.html",
        run,
        summary,
        run_dir,
        frame,
        parts=parts,
        budget_line=budget_line,
        data_rows=gate.data_rows(summary["data_figures"]),
        perplexity_text=perplexity_text,
        samples=_samples(summary, set(pieces)) if "samples" in summary else None,
        corpus=corpus,
        funnel=funnel(corpus),
        vocabulary=made,
        origin=_ORIGINS[made["source"]],
        pieces=_pieces(pieces, _SPACES.get(made["algorithm"])),
        spec=spec,
    )


class FunnelRow(NamedTuple):
    """A rule: the documents that it dropped, documents and bytes that were left, and their `share` [0, 1] of all."""

    name: str
    dropped: int
    documents: int
    size: int
    share: float


def funnel(corpus: Mapping[str, Any]) -> list[FunnelRow]:
    """A row for what was read, and one for each rule of corpus.json that dropped something, in their order."""
    fates = corpus["record"][ALL]
    read = total(fates)
    documents, size = read["documents"], read["bytes"]
    rows = [FunnelRow("read", 0, documents, size, 1.0)]
    for name in (*RULES, *FATES):
        if name in fates and name != KEPT:
            documents -= fates[name]["documents"]
            size -= fates[name]["bytes"]
            share = documents / max(read["documents"], 1)
            rows.append(FunnelRow(name, fates[name]["documents"], documents, size, share))
    return rows


def _evaluations(lines: curves.Log, parts: Sequence[Part]) -> Table:
    titles = ["Step"]
    rows = [[f"{line['step']:,}"] for line in lines]
    for part in parts:
        read = "perplexity" in part.metrics
        titles += [f"{part.title} loss", *["Perplexity"] * read, f"{part.title} accuracy"]
        for row, line in zip(rows, lines, strict=True):
            loss = line[f"{part.key}_loss"]
            row += [f"{loss:.3f}", *[_perplexity(loss)] * read, percent(line[f"{part.key}_accuracy"])]
    caption = (
        f"{len(lines)} evaluations; losses in nats. In training an evaluation may read a part of the held-out split; "
        "the gate reads all of it."
    )
    return Table(caption, titles, rows)


def _perplexity(loss: float) -> str:
    """The perplexity of a loss in nats; the exponential overflows above 709."""
    try:
        return perplexity_text(math.exp(loss))
    except OverflowError:
        return "∞"


def _samples(summary: Mapping[str, Any], pieces: set[str]) -> list[dict[str, Any]]:
    vocabulary = summary["recipe"]["vocabulary"]
    space = _SPACES.get(vocabulary["algorithm"], "")
    lower_case = vocabulary["lower_case"] and vocabulary["algorithm"] != "byte_bpe"
    samples = []
    for sample in summary["samples"]:
        before, _, after = sample["text"].partition(next(f.mask for f in FORMATS.values() if f.mask in sample["text"]))
        word = sample["masked_word"].lower() if lower_case else sample["masked_word"]
        guesses = [(token, score, token == word) for token, score in sample["predictions"]]
        samples.append(
            {
                "before": before,
                "after": after,
                "word": sample["masked_word"],
                "guesses": guesses,
                "hit": any(hit for _, _, hit in guesses),
                "one_piece": f"{space}{word}" in pieces,
            }
        )
    return samples


def _pieces(pieces: Sequence[str], space: str | None) -> dict[str, Any]:
    """Learned tokens longer than a character, in the order of their merges, and the distribution of their lengths."""
    bare = {p: p.removeprefix(space or "##") for p in pieces}
    special = {None: ["[]"], SPACE: ["<>"]}.get(space, ["[]", "<>"])
    learned = [p for p in pieces if len(bare[p]) > 1 and p[0] + p[-1] not in special]
    lengths = Counter(min(len(bare[p]), LONGEST_BAR) for p in learned)
    return {
        "first": learned[:PIECES_SHOWN],
        "last": learned[PIECES_SHOWN:][-PIECES_SHOWN:],
        "continuing": sum(p[0] != space for p in learned) if space else sum(p.startswith("##") for p in pieces),
        "lengths": [(n, lengths[n]) for n in range(2, LONGEST_BAR + 1)],
        "most": max(lengths.values(), default=1),
        "longest": LONGEST_BAR,
    }
