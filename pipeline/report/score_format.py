"""Formats official scores as the field does: shares in per cent, correlations with three decimals."""

import math
from typing import NamedTuple

# Of scores whose title is not their name.
_TITLES = {
    "micro_f1": "Micro F1",
    "macro_f1": "Macro F1",
    "exact": "Exact match",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "mrr@10": "MRR@10",
    "ndcg@10": "NDCG@10",
}
_CORRELATIONS = ("matthews_correlation", "pearson", "spearman")
MINUS = "\N{MINUS SIGN}"
NO_SCORE = "no score"

# Note on a score, by kind of task; {rows} is the number of held-out rows. Others have `_PLAIN_NOTE`.
_NOTES = {
    ("classification", "accuracy"): "of {rows} held-out rows are answered right.",
    ("classification", "f1"): "of the label “1” among {rows} held-out rows: the harmonic mean of precision and recall.",
    ("classification", "matthews_correlation"): "of right and given labels of {rows} held-out rows; 0 is a guess.",
    ("multi_label", "micro_f1"): "of all labels of {rows} held-out rows together.",
    ("multi_label", "macro_f1"): "of each label of {rows} held-out rows, on average.",
    ("regression", "pearson"): "of right and given numbers of {rows} held-out rows; 1 is on one line.",
    ("regression", "spearman"): "of the ranks of right and given numbers of {rows} held-out rows; 1 is the same order.",
    (
        "ranking",
        "mrr@10",
    ): "of the queries of {rows} held-out rows: mean of 1 / place of the first relevant passage.",
    ("ranking", "ndcg@10"): "of the queries of {rows} held-out rows: the gain of the ten best, of the best order's.",
    ("multiple_choice", "accuracy"): "of {rows} held-out rows are answered with the right choice.",
    ("span", "f1"): "of the words of right and given answers to {rows} held-out questions, on average.",
    ("span", "exact_match"): "of {rows} held-out questions are answered exactly with one of the right answers.",
    ("span", "exact"): "of {rows} held-out questions are answered exactly, those without an answer by none.",
    ("tagging", "f1"): "of whole entities in {rows} held-out sentences, as conlleval counts them.",
    ("tagging", "precision"): "of the entities that the model finds are right.",
    ("tagging", "recall"): "of the right entities are found.",
    ("similarity", "spearman"): "of the ranks of right scores and cosines of {rows} held-out pairs.",
    ("similarity", "pearson"): "of right scores and cosines of {rows} held-out pairs.",
    ("retrieval", "mrr@10"): "of {rows} held-out pairs: the mean of 1 / place of the right text, 0 beyond the tenth.",
    ("retrieval", "recall@1"): "of {rows} held-out texts are nearest to their own pair.",
    ("retrieval", "recall@10"): "of {rows} held-out texts have their own pair among the ten nearest.",
    ("tagging", "accuracy"): "of the tags of all words are right; most words have none.",
}
_PLAIN_NOTE = "on {rows} held-out rows."


class ScoreForm(NamedTuple):
    """Format of a score; `scale` is the factor to per cent, None for a correlation; the note has {rows}."""

    title: str
    scale: float | None
    note: str

    def number(self, value: float | None) -> str:
        """Format a score: 0.9126 -> 91.3%, a correlation 0.913; `NO_SCORE` for None and nan."""
        if value is None or math.isnan(value):
            return NO_SCORE
        return _signed(f"{value:.3f}" if self.scale is None else f"{value * self.scale:.1f}%")

    def bound(self, value: float) -> str:
        """Format a threshold with all its digits: 0.55 -> 55%."""
        return _signed(f"{value:g}" if self.scale is None else f"{value * self.scale:g}%")

    def difference(self, value: float) -> str:
        """Format a difference: 0.012 -> +1.2 points, of a correlation +0.012."""
        return _signed(f"{value:+.3f}" if self.scale is None else f"{value * self.scale:+.1f} points")

    def amount(self, value: float) -> str:
        """Format an allowed difference with all its digits: 0.01 -> 1 point, of a correlation 0.01."""
        if self.scale is None:
            return f"{value:g}"
        points = f"{value * self.scale:g}"
        return f"{points} point{'s' * (points != '1')}"

    def axis(self, value: float) -> str:
        """Format a score for an axis."""
        return _signed(f"{value:.3g}" if self.scale is None else f"{value * self.scale:.3g}%")


def score_form(kind: str, name: str) -> ScoreForm:
    """The format of a task's score by its official name; SQuAD's scores are already in per cent."""
    title = _TITLES.get(name, name.replace("_", " ").capitalize())
    return ScoreForm(title, _scale(kind, name), _NOTES.get((kind, name), _PLAIN_NOTE))


def figure(kind: str, name: str, value: float | None) -> str:
    """Format a figure of an official scorer: evaluate-v2.0.py also has counts (`total`) and odds (`best_f1_thresh`)."""
    if value is None:  # HasAns_f1, where every question is unanswerable
        return ""
    if name.endswith("total"):
        return f"{value:,.0f}"
    if name.endswith("_thresh"):
        return _signed(f"{value:.3f}")
    # HasAns_f1, best_exact
    return ScoreForm(name, _scale(kind, name), "").number(value)


def _scale(kind: str, name: str) -> float | None:
    return None if name in _CORRELATIONS else 1.0 if kind == "span" else 100.0


def _signed(text: str) -> str:
    return text.replace("-", MINUS)
