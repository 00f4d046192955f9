"""Minimal pairs: does a model prefer the grammatical one of two sentences? BLiMP (Warstadt et al. 2020) and its like.

JSON lines, one pair a line; further keys are ignored. Without UID the paradigm is the name of the file, without
linguistics_term the phenomenon is the paradigm:

    {"sentence_good": "Susan revealed herself.", "sentence_bad": "Susan revealed themselves.",
     "linguistics_term": "anaphor_agreement", "UID": "anaphor_number_agreement"}

Rows of EWoK (Ivanova et al. 2024, arXiv 2405.09605) are read as BabyLM's evaluation of 2026 does (`decode_ewok` of
babylm-org/babylm-eval): is Target1 likelier after Context1 than after Context2? That of 2025 compares Target1 with
Target2 after Context1. Domain is the paradigm.

    {"Domain": "social-properties", "Context1": "Ann helps everyone.", "Context2": "Ann helps nobody.",
     "Target1": "She is kind."}

A pair is right if the good sentence is likelier (`bert_keras.tasks.sentence_likelihood`); a tie counts half. Figures of
all pairs, by phenomenon (linguistics_term) and by paradigm (UID):

    {"overall": {"pairs": 2000, "accuracy": 0.61, "interval": [0.588, 0.631]},
     "phenomena": {"anaphor_agreement": {...}}, "paradigms": {"anaphor_number_agreement": {...}}}

The Evaluator writes them to `minimal_pairs.json`, with `min_accuracy`, the threshold of `gate.min_minimal_pairs`.
"""

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bert_keras.errors import InputError
from bert_keras.notices import notify
from components.corpus_gen.inputs import list_files
from components.evaluator.chance import margin_errors, ratio_of_groups
from components.io.compression import extension
from components.io.shards import write_by_content
from components.task_example_gen.readers.records import RowError, decoded, numbered_lines
from components.task_example_gen.task_files import open_content

if TYPE_CHECKING:
    from bert_keras.tasks.sentence_likelihood import Scoring

FILE = "minimal_pairs.json"
_KEYS = ("sentence_good", "sentence_bad", "linguistics_term", "UID", "context_good", "context_bad")
# EWoK's keys in their place.
_EWOK_KEYS = ("Target1", "Target1", "linguistics_term", "Domain", "Context1", "Context2")
_NEEDED = "sentence_good and sentence_bad"
# Key of the original place of a pair, in files of `write_pairs`.
_WHERE = "where"
# Of a 95 % interval: the 0.975 quantile of the standard normal distribution.
_Z = 1.959964


@dataclasses.dataclass(frozen=True)
class MinimalPair:
    """A pair, with the place that errors name ("blimp/passive_1.jsonl, line 3")."""

    where: str
    good: str
    bad: str
    phenomenon: str
    paradigm: str
    context_good: str = ""  # the text before the sentence, which is read and not scored
    context_bad: str = ""


def read_pairs(patterns: Sequence[str], option: str, limit: int | None = None) -> list[MinimalPair]:
    """The pairs of all files that `patterns` match (paths, folders, globs; compressed or not), in order.

    `limit`: only the first so many of each paradigm. InputError, which names `option`, or file and row: there are no
    pairs, or a row is no pair.
    """
    pairs: list[MinimalPair] = []
    seen: Counter[str] = Counter()
    for file in list_files(patterns, option):
        for pair in _pairs_of(file.path):
            seen[pair.paradigm] += 1
            if limit is None or seen[pair.paradigm] <= limit:
                pairs.append(pair)
    if not pairs:
        raise InputError(f"{option}: no pairs in {', '.join(patterns)}; give JSON lines with {_NEEDED}")
    return pairs


def _pairs_of(path: str) -> Iterator[MinimalPair]:
    file = os.path.basename(path)
    name = file[: file.lower().rindex(extension(file))]
    with open_content(path) as content:
        for row, line in numbered_lines(content):
            where = f"{path}, {row}"
            try:
                record = json.loads(decoded(line))
            except (RowError, ValueError, RecursionError) as error:
                raise InputError(f"{where}: is not JSON ({error}); minimal pairs are JSON lines") from error
            given = record.items() if isinstance(record, dict) else ()
            stated = {key: value for key, value in given if value is not None}
            fields: dict[str, Any] = {"UID": name, "Domain": name, **stated}
            is_ewok = _EWOK_KEYS[0] in fields
            keys, needed = (_EWOK_KEYS, "Context1, Context2 and Target1") if is_ewok else (_KEYS, _NEEDED)
            fields = {"linguistics_term": fields.get(keys[3]), "context_good": "", "context_bad": ""} | fields
            values: list[Any] = [fields.get(key) for key in keys]
            for key, value in zip(keys, values, strict=True):
                if not isinstance(value, str) or not (value.strip() or key in _KEYS[4:]):
                    raise InputError(f"{where}: has no text under {key!r}; a minimal pair needs {needed}")
            yield MinimalPair(str(fields.get(_WHERE, where)), *values)


def write_pairs(pairs: Iterable[MinimalPair], directory: str) -> str:
    """Write the pairs to one file named by its content, for stages that run elsewhere; returns its path."""
    rows = [dict(zip((_WHERE, *_KEYS), dataclasses.astuple(pair), strict=True)) for pair in pairs]
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode("utf-8", "surrogatepass")
    return write_by_content(directory, "minimal_pairs-{}.jsonl", content)


def score_pairs(
    folder: str, pairs: Sequence[MinimalPair], scoring: "Scoring" = "pll", cased: bool | None = None
) -> list[tuple[float, float]]:
    """The log-likelihoods of the good and of the bad sentence of each pair, after their contexts, in nats.

    `folder` is a model that `bert-tfx convert` reads; of an ELECTRA its generator is scored. `scoring` is for masked
    language models. `cased`: whether the vocabulary keeps case; None: as the folder says. InputError: the folder has no
    language model or no vocabulary, or a sentence is too long or without tokens.
    """
    from bert_keras.convert.formats import read_folder
    from bert_keras.tasks.sentence_likelihood import log_likelihoods, longest_sentence, masks_nothing
    from bert_keras.tasks.sequences import TokenRuns

    source = read_folder(folder, cased)
    model: Any = source.generator or source.model
    tokenizer = source.known_tokenizer()
    if not {"mlm_head", "lm_head"} & {*dir(model)} or "masked-LM head" in source.untrained:
        raise InputError(
            f"{folder}: has no masked-LM head (an ELECTRA: no generator), so sentences have no likelihood; give the "
            "pre-trained model with its head"
        )
    if masks_nothing(model) and scoring != "pll":
        raise InputError(f"{folder}: always predicts next tokens, and masks nothing; leave {scoring} out")
    if scoring in ("next-token", "sum"):
        notify(f"{folder}: {scoring} means nothing of a model that never learned next tokens, as GPT-BERT does")
    both = [texts for pair in pairs for texts in ((pair.context_good, pair.good), (pair.context_bad, pair.bad))]
    runs = TokenRuns.of(tokenizer, [f"{context} {sentence}" if context else sentence for context, sentence in both])
    # A context ends with a word, so its tokens are the first ones of the whole.
    contexts = TokenRuns.of(tokenizer, [context for context, _ in both]).lengths
    longest = longest_sentence(model)
    for number, (length, context) in enumerate(zip(runs.lengths, contexts, strict=True)):
        if not context < length <= longest:
            problem = f"has {length} tokens, above the model's {longest}" if length > context else "has no tokens"
            raise InputError(f"{pairs[number // 2].where}: {_KEYS[number % 2]} {problem}; leave the pair out")
    scores = log_likelihoods(model, tokenizer, runs, scoring, contexts).reshape(-1, 2)
    return [(float(good), float(bad)) for good, bad in scores]


def figures(pairs: Sequence[MinimalPair], scores: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """The accuracies, as above; paradigms and phenomena are sorted by name."""
    points: dict[tuple[str, str], dict[str, list[float]]] = {}
    for pair, (good, bad) in zip(pairs, scores, strict=True):
        point = 1.0 if good > bad else 0.5 if good == bad else 0.0
        for key in (("overall", ""), ("phenomena", pair.phenomenon), ("paradigms", pair.paradigm)):
            points.setdefault(key, {}).setdefault(pair.paradigm, []).append(point)
    result: dict[str, Any] = {"overall": _figures(points[("overall", "")])}
    for grouping in ("phenomena", "paradigms"):
        result[grouping] = {name: _figures(points[by, name]) for by, name in sorted(points) if by == grouping}
    return result


def missed(written: Mapping[str, Any]) -> bool:
    """Return whether the accuracy is below the threshold in the figures that the Evaluator wrote."""
    minimum = written["min_accuracy"]
    return minimum is not None and written["overall"]["accuracy"] < minimum


def _figures(points: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """Figures of pairs by paradigm."""
    # Pairs of a paradigm are alike, so of several paradigms these are the sampling unit: the interval is that of the
    # number of independent pairs with the same standard error (Korn and Graubard 1998). Of one it is of its pairs.
    sums = np.array([(math.fsum(of_paradigm), len(of_paradigm)) for of_paradigm in points.values()])
    accuracy, error = ratio_of_groups(*sums.T)
    pairs = int(sums[:, 1].sum())
    independent = float(pairs)
    if error > 0.0:
        errors = error * margin_errors(len(points)) / _Z
        independent = min(pairs, accuracy * (1.0 - accuracy) / errors**2)
    return {"pairs": pairs, "accuracy": accuracy, "interval": list(wilson_interval(accuracy, independent))}


def wilson_interval(share: float, count: float) -> tuple[float, float]:
    """The 95 % interval of a share of `count` draws (Wilson 1927).

    >>> [round(end, 4) for end in wilson_interval(0.8, 10)]
    [0.4902, 0.9433]
    """
    spread = _Z**2 / count
    middle = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread**2 / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
