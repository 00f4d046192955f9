"""Reads or trains the model of `corpus.perplexity`, and measures its cut points, before the first stage.

Both read a sample: the beginnings of at most _MOST_UNITS units of work, the same ones for the same files.
"""

from __future__ import annotations

import dataclasses
import random
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from bert_keras.errors import InputError
from components.corpus_gen.filters.chain import FilterChain
from components.corpus_gen.filters.ngram_model import NgramModel, read_arpa, sentence
from components.corpus_gen.filters.ngram_training import train
from components.corpus_gen.inputs import InputFile, list_files
from components.corpus_gen.readers import read_unit, read_units
from components.corpus_gen.settings import CorpusSettings, PassageSettings, PerplexitySettings
from components.io.shards import open_for_ranges, write_by_content

_MOST_UNITS = 1000
# Characters of the corpus that are read for the cut points.
_MEASURED = 20_000_000
_OPTION = "corpus.perplexity.good_text"


def with_ngram_model(settings: CorpusSettings, files: Sequence[InputFile], directory: str) -> CorpusSettings:
    """Write the model of `settings.perplexity` to a file named by its content.

    Returns the settings for the workers, with the path of the file in place of ARPA file and good text, and with cut
    points, so that another model gives other settings, which the cache does not know. Unchanged if the filter is off.
    Workers must be able to read the directory.

    Args:
        settings: settings; `decontaminate` has the table (`with_leak_table`).

    Raises:
        InputError: the model or the good text cannot be read, or the good text is empty; names it.
    """
    given = settings.perplexity
    if not (given.model or given.good_text):
        return settings
    model = read_arpa(given.model) if given.model else _trained(settings)
    path = write_by_content(directory, "ngrams-{}.npz", model.to_bytes())
    points = given.cut_points
    if given.keep and not points:
        points = _cut_points(settings, files, model)
    return dataclasses.replace(
        settings, perplexity=dataclasses.replace(given, model=path, good_text=(), cut_points=points)
    )


def _trained(settings: CorpusSettings) -> NgramModel:
    given = settings.perplexity
    hashes = array("Q")
    for lines in _sample(list_files(given.good_text, _OPTION), settings, given.good_text_characters):
        for line in lines:
            hashes.extend(sentence(line))
    if not hashes:
        raise InputError(f"{_OPTION}: {', '.join(given.good_text)} has no text; give files with text of good quality")
    return train(np.frombuffer(hashes, np.uint64), given.order)


def _cut_points(settings: CorpusSettings, files: Sequence[InputFile], model: NgramModel) -> tuple[float, ...]:
    """The percentiles of a sample of the corpus, as the other filters that are on leave it, but for passages."""
    others = FilterChain(dataclasses.replace(settings, passages=PassageSettings(), perplexity=PerplexitySettings()))
    filtered = (others(lines, Counter()) for lines in _sample(files, settings, _MEASURED))
    measured = [model.perplexity(lines) for lines, rule in filtered if not rule]
    if not measured:
        raise InputError(
            "corpus.perplexity.keep: no document of the sample remains after the other filters; change these, or give "
            "corpus.perplexity.cut_points"
        )
    return tuple(round(float(point), 2) for point in np.percentile(measured, settings.perplexity.percentiles))


def _sample(files: Sequence[InputFile], settings: CorpusSettings, characters: int) -> Iterator[list[str]]:
    """The lines of documents of at most about so many characters, from all parts of the files."""
    units = [unit for some in read_units(files, settings) for unit in some]
    chosen = random.Random(0).sample(units, min(len(units), _MOST_UNITS))
    for number, unit in enumerate(chosen):
        # What one unit lacks, the later ones may have.
        left = characters // (len(chosen) - number)
        for _, lines in read_unit(unit, settings, Counter(), open_for_ranges):
            size = sum(map(len, lines))
            if size > left:
                break
            left -= size
            characters -= size
            yield lines
