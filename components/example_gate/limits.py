"""Limits for a corpus and its examples, checked before training; no TFX."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from bert_keras.data.example_format import LABELLED
from bert_keras.errors import Count, Settings, Share
from components.pretrain_example_gen.settings import EVAL, TRAIN

CORPUS, EXAMPLES = "corpus", "examples"
DOCUMENTS = "documents"


@dataclasses.dataclass(frozen=True)
class DataLimits(Settings, section="data"):
    """A run outside of these limits stops before training; fractions are in [0, 1], of both splits together.

    Figures that an objective does not have (next sentences, masks) are not checked.

    Attributes:
        min_documents: minimum number of documents; with the default eval_fraction of 0.05, 20 leave one to hold out.
        max_duplicate_fraction: share of the documents dropped as duplicates or near duplicates.
        max_unknown_fraction: share of [UNK] among the tokens of the documents.
        min_random_next_fraction: share of the examples whose second segment is random, or swapped with the first. The
            original (create_instances_from_document in create_pretraining_data.py) makes more than half of them so.
        max_random_next_fraction: share of the examples whose second segment is random.
        min_masked_fraction: share of the tokens of the examples that are to be predicted.
        max_masked_fraction: share of the tokens of the examples that are to be predicted.
        min_fill_fraction: share of the positions of the examples that are not padding.
        max_duplicate_example_fraction: share of the examples with the tokens of another one of the same pass.
    """

    min_documents: Count = 20
    max_duplicate_fraction: Share = 0.5
    max_unknown_fraction: Share = 0.01
    min_random_next_fraction: Share = 0.4
    max_random_next_fraction: Share = 0.85
    min_masked_fraction: Share = 0.1
    max_masked_fraction: Share = 0.2
    min_fill_fraction: Share = 0.5
    max_duplicate_example_fraction: Share = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("random_next_fraction", "masked_fraction"):
            minimum, maximum = getattr(self, f"min_{name}"), getattr(self, f"max_{name}")
            if minimum > maximum:
                raise ValueError(f"data.min_{name} is {minimum}; it must be at most data.max_{name}, {maximum}")


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the data `of` "corpus" or "examples", with its limits, the settings data.min_NAME and data.max_NAME.

    `value` is a count or a fraction; None, which is within all limits, if the data have no such figure. `remedy` is for
    a value outside the limits. Without a `source` it is of all text together.
    """

    name: str
    of: str
    label: str
    value: float | None
    minimum: float | None
    maximum: float | None
    remedy: str
    source: str = ""

    @property
    def title(self) -> str:
        """The label, with the source."""
        return f"{self.label} of {self.source}" if self.source else self.label

    @property
    def problem(self) -> str:
        """Violated limit, its setting and the remedy; "" if the value is within the limits."""
        if self.value is None:
            return ""
        if self.minimum is not None and self.value < self.minimum:
            allowed = f"at least {self.text(self.minimum)} (data.min_{self.name})"
        elif self.maximum is not None and self.value > self.maximum:
            allowed = f"at most {self.text(self.maximum)} (data.max_{self.name})"
        else:
            return ""
        kind = "number" if self.name == DOCUMENTS else "share"
        return (
            f"{self.of}: {kind} of {self.title} is {self.text(self.value)}, the recipe allows {allowed}: {self.remedy}"
        )

    @property
    def wanted(self) -> str:
        """The limits, for people."""
        if self.minimum is not None and self.maximum is not None:
            return f"{self.text(self.minimum)} to {self.text(self.maximum)}"
        limits = (("at least", self.minimum), ("at most", self.maximum))
        return "".join(f"{words} {self.text(limit)}" for words, limit in limits if limit is not None)

    def text(self, value: float) -> str:
        """Format a value: 14,707 or 60.61%"""
        return f"{value:,}" if self.name == DOCUMENTS else f"{100 * value:.4g}%"


def check_limits(spec: Mapping[str, Any], corpus: Mapping[str, Any], limits: DataLimits) -> list[Figure]:
    """All figures of the data with their limits; training may start if none has a `problem`.

    The limits hold for all text together and for each source that has a name. `spec` and `corpus` are the contents of
    `example_spec.json` and `corpus.json`.
    """
    figures = _figures(spec, corpus, limits)
    for name, counts in spec.get("sources", {}).items():
        of_source = _figures({**spec, "counts": counts}, corpus["sources"][name], limits)
        figures += [dataclasses.replace(figure, source=name) for figure in of_source]
    return figures


def _figures(spec: Mapping[str, Any], corpus: Mapping[str, Any], limits: DataLimits) -> list[Figure]:
    by_split, objective = spec["counts"], spec["objective"]
    both = _sum(by_split, (TRAIN, EVAL))
    # With dynamic masking, only the held-out examples are stored with masks.
    when = spec["masking"].get("when")
    masked = _sum(by_split, () if objective == "left_to_right" else (EVAL,) if when == "dynamic" else (TRAIN, EVAL))
    documents = _sum(corpus, (TRAIN, EVAL))
    dropped = documents.get("duplicates", 0) + documents.get("near_duplicates", 0)
    # Rows of packed examples contain several sequences.
    sequences = both.get("sequences") or both["instances"]

    def figure(name: str, of: str, label: str, value: float | None, remedy: str) -> Figure:
        least, most = getattr(limits, f"min_{name}", None), getattr(limits, f"max_{name}", None)
        return Figure(name, of, label, value, least, most, remedy)

    return [
        figure(
            DOCUMENTS, CORPUS, DOCUMENTS,
            documents["documents"],
            "give more text, or another corpus.documents (what a document is), or drop fewer (corpus.cleaning)",
        ),
        figure(
            "duplicate_fraction", CORPUS, "duplicate documents",
            _share(dropped, documents["documents"] + dropped),
            "see whether the same text is given twice, or most of it is boilerplate",
        ),
        figure(
            "unknown_fraction", EXAMPLES, "[UNK]",
            _share(both["unknown_tokens"], both["tokens"]),
            "the vocabulary does not fit the text: raise model.vocab_size, lower vocabulary.min_word_count, "
            "give a vocabulary of the text's language, or clean the text (corpus.cleaning)",
        ),
        figure(
            "random_next_fraction", EXAMPLES,
            "swapped segments" if objective == "mlm_sop" else "random next sentences",
            _share(both["random_next"], sequences) if objective in LABELLED else None,
            "a random one needs other documents, a real one a document of two sentences: separate documents, not "
            "sentences, by blank lines (corpus.documents)",
        ),
        figure(
            "masked_fraction", EXAMPLES, "masked tokens",
            # With nothing held out, training says so.
            _share(masked["masked"], masked["real_tokens"]) if masked.get("real_tokens") else None,
            "examples.masking.masked_lm_prob asks for a share, examples.masking.max_predictions_per_seq cuts it off",
        ),
        figure(
            "fill_fraction", EXAMPLES, "filled positions",
            _share(both["real_tokens"], both["slots"]),
            "documents are shorter than examples: lower examples.max_seq_length, or pack (examples.packing=true)",
        ),
        figure(
            "duplicate_example_fraction", EXAMPLES, "duplicate examples",
            _share(both["duplicate_instances"], sequences) if "duplicate_instances" in both else None,
            "the same sentences come again and again: clean the text (corpus.cleaning.near_duplicates=true)",
        ),
    ]  # fmt: skip


def _sum(counts: Mapping[str, Mapping[str, int]], splits: tuple[str, ...]) -> dict[str, int]:
    """Counts of some splits, added by name."""
    names = dict.fromkeys(name for split in splits for name in counts[split])
    return {name: sum(counts[split].get(name, 0) for split in splits) for name in names}


def _share(part: int, whole: int) -> float:
    return part / max(1, whole)
