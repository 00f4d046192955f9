import dataclasses
import pickle
import re
from collections import Counter
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions

from components.corpus_gen.filters.chain import FilterChain
from components.corpus_gen.filters.ngram_model import read_arpa
from components.corpus_gen.filters.perplexity import RULES, Perplexity
from components.corpus_gen.readers import ReadUnit
from components.corpus_gen.record.card import CARD_FILE
from components.corpus_gen.record.counts_file import COUNTS_FILE
from components.corpus_gen.settings import CorpusSettings, PerplexitySettings
from components.corpus_gen.transforms import generate_documents
from components.io.shards import read_documents, read_json

ARPA = Path(__file__).parent / "golden/kenlm.arpa"
GOOD, ODD, BAD = "The hare ran a race.", "The race of the dog was good.", "Xyzzy 42 plugh!"


@pytest.fixture
def settings(tmp_path):
    """Settings with the model of the golden file, and no limit that drops."""
    model = read_arpa(str(ARPA))
    (tmp_path / "ngrams.npz").write_bytes(model.to_bytes())
    good, odd, bad = (model.perplexity([line]) for line in (GOOD, ODD, BAD))
    assert good < odd < bad
    points = ((good + odd) / 2, (odd + bad) / 2)
    return PerplexitySettings(model=str(tmp_path / "ngrams.npz"), max=bad, cut_points=points)


def judge(settings, **changes):
    """What becomes of GOOD, ODD and BAD, and what is found."""
    one, found = pickle.loads(pickle.dumps(Perplexity(dataclasses.replace(settings, **changes)))), Counter()
    rules = []
    for line in (GOOD, ODD, BAD):
        lines, rule = one([line], found)
        assert lines == [line] and rule in {"", *RULES}
        rules.append(rule)
    assert found.keys() <= RULES.keys()
    return rules, {name.removeprefix("perplexity_in_"): count for name, count in found.items()}


def test_thresholds_and_buckets(settings):
    first, second = settings.cut_points
    each = {"head": 1, "middle": 1, "tail": 1}
    assert judge(settings) == (["", "", ""], each)
    assert judge(settings, max=second) == (["", "", "perplexity_high"], {"head": 1, "middle": 1})
    assert judge(settings, min=first) == (["perplexity_low", "", ""], {"middle": 1, "tail": 1})
    assert judge(settings, keep=("head",)) == (["", *["perplexity_bucket"] * 2], each)
    assert judge(settings, keep=("middle", "tail")) == (["perplexity_bucket", "", ""], each)
    assert judge(settings, cut_points=()) == (["", "", ""], {})


def test_a_value_at_a_limit_is_kept_and_at_a_cut_point_in_the_upper_bucket(settings):
    value = read_arpa(str(ARPA)).perplexity([ODD])
    assert judge(settings, max=value)[0][1] == judge(settings, max=1e9, min=value)[0][1] == ""
    assert judge(settings, cut_points=(1, value))[1] == {"middle": 1, "tail": 2}
    assert judge(settings, cut_points=(value, 1e9))[1] == {"head": 1, "middle": 2}


def test_it_is_off_without_a_model_and_before_personal_data(settings):
    assert not FilterChain(CorpusSettings())._filters
    personal = dataclasses.replace(CorpusSettings().personal_data, email=True)
    names = [
        type(one).__name__ for one in FilterChain(CorpusSettings(perplexity=settings, personal_data=personal))._filters
    ]
    assert names == ["Perplexity", "PersonalData"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model": "", "max": 0}, ""),
        ({"cut_points": (5.0, 5.0)}, ""),
        ({"good_text": ("a",)}, ".model and corpus.perplexity.good_text are two models; give one of them"),
        ({"max": 0}, " has a model and no limit; give corpus.perplexity.max, min or keep"),
        ({"model": ""}, " has a limit and no model; give corpus.perplexity.model or good_text"),
        ({"good_text_characters": 0}, ".good_text_characters must be above 0"),
        ({"order": 1}, ".order is 1; it must be in [2, 6]"),
        ({"min": -1}, ".max and min must be at least 0"),
        ({"max": 5.0, "min": 5.0}, ".max is 5.0; it must be above corpus.perplexity.min, 5.0"),
        ({"keep": ("head", "last")}, ".keep is head,last; choose from head,middle,tail"),
        ({"percentiles": (60.0, 30.0)}, ".percentiles must be two, such as 30,60"),
        ({"percentiles": (30.0, 100.0)}, ".percentiles must be two, such as 30,60"),
        ({"percentiles": (30.0,)}, ".percentiles must be two, such as 30,60"),
        ({"cut_points": (0.0, 5.0)}, ".cut_points must be two, such as 200,500"),
        ({"cut_points": (5.0,)}, ".cut_points must be two, such as 200,500"),
    ],
)
def test_settings_out_of_range_are_refused(changes, message):
    valid = PerplexitySettings(model="a", max=9.0)
    if not message:
        dataclasses.replace(valid, **changes)
        return
    with pytest.raises(ValueError, match=f"^{re.escape('corpus.perplexity' + message)}$"):
        dataclasses.replace(valid, **changes)


def test_the_record_and_the_same_documents_for_one_worker_and_two(settings, tmp_path):
    good, bad = (read_arpa(str(ARPA)).perplexity([line, "0"]) for line in (GOOD, BAD))
    limits = dataclasses.replace(settings, max=1e9, keep=("head", "middle"), cut_points=(good - 1, bad))
    settings = CorpusSettings(segments="lines", perplexity=limits)
    units = []
    for number in range(9):
        path = tmp_path / f"{number}.txt"
        path.write_text(f"{GOOD}\n{number}\n\n{BAD}\n{number}\n")
        units.append([ReadUnit(str(path))])
    made = []
    for workers in (1, 2):
        out = tmp_path / f"out{workers}"
        args = ["--runner=FnApiRunner", f"--direct_num_workers={workers}", "--direct_running_mode=multi_threading"]
        with beam.Pipeline(options=PipelineOptions(args)) as pipeline:
            generate_documents(pipeline, units, settings, str(out))
        paths = sorted([*out.glob("Split-*/*"), out / COUNTS_FILE, out / CARD_FILE])
        made.append([path.read_bytes() for path in paths])
    assert made[0] == made[1]
    kept = [document for path in out.glob("Split-*/*") for document in read_documents(str(path))]
    assert sorted(kept) == [[GOOD, str(number)] for number in range(9)]
    counts = read_json(f"{out}/{COUNTS_FILE}")
    assert counts["read"]["dropped_perplexity_bucket"] == 9 == counts["found"]["perplexity_in_tail"]
    assert counts["perplexity"] == {"model": "ngrams.npz", "cut_points": list(settings.perplexity.cut_points)}
    card = (out / CARD_FILE).read_text()
    assert str(tmp_path) not in card and f"| corpus.perplexity.cut_points | {good - 1}," in card
    assert RULES["perplexity_bucket"] in card and RULES["perplexity_in_tail"] in card
