import dataclasses
import random
import re
from pathlib import Path

import numpy as np
import pytest

from bert_keras.errors import InputError
from components.corpus_gen.filters import perplexity_model
from components.corpus_gen.filters.ngram_model import NgramModel, read_arpa
from components.corpus_gen.filters.perplexity_model import with_ngram_model
from components.corpus_gen.inputs import find_inputs
from components.corpus_gen.settings import CleaningSettings, CorpusSettings, PerplexitySettings

ARPA = Path(__file__).parent / "golden/kenlm.arpa"


@pytest.fixture
def resolve(tmp_path):
    """`resolve(perplexity settings)` of a corpus of 101 documents; returns the settings for the workers."""
    words = random.Random(3)
    documents = [" ".join(words.choices(["the", "hare", "crow", "zzz"], k=6)) for _ in range(101)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))

    def resolve(cleaning=None, **changes):
        settings = CorpusSettings(perplexity=PerplexitySettings(**changes), cleaning=cleaning or CleaningSettings())
        files = find_inputs([f"{tmp_path}/text.txt"], settings)
        resolved = with_ngram_model(settings, files, f"{tmp_path}/inputs")
        assert dataclasses.replace(resolved, perplexity=settings.perplexity) == settings
        return resolved.perplexity

    resolve.documents = documents
    return resolve


def test_an_arpa_file_is_stored_by_its_content(resolve, tmp_path):
    given = resolve(model=str(ARPA), max=100.0)
    assert re.fullmatch(rf"{re.escape(str(tmp_path))}/inputs/ngrams-[0-9a-f]{{16}}\.npz", given.model)
    assert NgramModel.read(given.model).to_bytes() == read_arpa(str(ARPA)).to_bytes()
    assert given == PerplexitySettings(model=given.model, max=100.0)
    (tmp_path / "other.arpa").write_text(ARPA.read_text().replace("\ta race", "\trace a"))
    assert resolve(model=f"{tmp_path}/other.arpa", max=100.0) != given == resolve(model=str(ARPA), max=100.0)


def test_good_text_trains_a_model(resolve, tmp_path):
    (tmp_path / "good").mkdir()
    for number in range(3):
        (tmp_path / f"good/{number}.txt").write_text(
            "The hare saw the crow.\n\nThe crow saw the hare.\n" * (number + 1)
        )
    given = resolve(good_text=(f"{tmp_path}/good",), max=100.0)
    assert not given.good_text and resolve(good_text=(f"{tmp_path}/good/*.txt",), max=100.0) == given
    model = NgramModel.read(given.model)
    assert len(model.levels) == 3 and model.perplexity(["The hare saw the crow."]) < 2 < model.perplexity(["zzz"])
    other = {
        resolve(good_text=(f"{tmp_path}/good",), max=100.0, **changes).model
        for changes in ({}, {"order": 2}, {"good_text_characters": 60})
    }
    assert len(other) == 3


def test_at_most_so_much_good_text_is_read_from_all_files(tmp_path):
    for number in range(50):
        (tmp_path / f"{number:02d}.txt").write_text(f"{'n' * 100}{number:02d}\n\n" * 30)
    files = find_inputs([str(tmp_path)], CorpusSettings())
    read = [lines[0] for lines in perplexity_model._sample(files, CorpusSettings(), 5100)]
    assert len(read) == 50 and read == [lines[0] for lines in perplexity_model._sample(files, CorpusSettings(), 5100)]
    assert len(set(read)) > 20
    assert len([*perplexity_model._sample(files, CorpusSettings(), 10**6)]) == 1500


def test_cut_points_are_percentiles_of_the_corpus(resolve):
    model = read_arpa(str(ARPA))
    values = sorted(model.perplexity([document]) for document in resolve.documents)
    given = resolve(model=str(ARPA), keep=("head",))
    assert given.cut_points == pytest.approx([values[30], values[60]], abs=0.006)
    assert resolve(model=str(ARPA), keep=("head",), percentiles=(10.0, 90.0)).cut_points == pytest.approx(
        [values[10], values[90]], abs=0.006
    )
    assert resolve(model=str(ARPA), keep=("head",), cut_points=(5.0, 6.0)).cut_points == (5.0, 6.0)
    long = [model.perplexity([document]) for document in resolve.documents if len(document) >= 26]
    filtered = resolve(CleaningSettings(min_characters=26), model=str(ARPA), keep=("head",)).cut_points
    assert len(long) < 80 and filtered == pytest.approx(np.percentile(long, [30, 60]), abs=0.006)


def test_without_a_model_nothing_is_written(resolve, tmp_path):
    assert resolve() == PerplexitySettings() and not (tmp_path / "inputs").exists()


def test_what_cannot_be_used_is_refused(resolve, tmp_path):
    (tmp_path / "empty.txt").write_text(" \n\n")
    with pytest.raises(InputError, match=r"^corpus\.perplexity\.good_text: .*empty\.txt has no text; give "):
        resolve(good_text=(f"{tmp_path}/empty.txt",), max=9.0)
    with pytest.raises(InputError, match=r"none\*: no such file; corpus\.perplexity\.good_text takes a file, a folder"):
        resolve(good_text=(f"{tmp_path}/none*",), max=9.0)
    with pytest.raises(InputError, match=r"^.*/none\.arpa: cannot be read \(.*\); give a readable, whole file"):
        resolve(model=f"{tmp_path}/none.arpa", max=9.0)
    with pytest.raises(InputError, match=r"^corpus\.perplexity\.keep: no document of the sample remains "):
        resolve(CleaningSettings(min_characters=1000), model=str(ARPA), keep=("head",))
