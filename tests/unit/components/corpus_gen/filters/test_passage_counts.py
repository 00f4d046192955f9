"""Repeated passages of a whole corpus are found on disk, the same ones for any work and any workers."""

import collections
import dataclasses
import functools
import hashlib
import json
import os
import random
import tracemalloc

import numpy as np
import pytest
import unicodedata2

from components.corpus_gen import readers
from components.corpus_gen.filters import passage_counts, passages
from components.corpus_gen.filters.passage_counts import HashPassages, _tables, _write_table
from components.corpus_gen.filters.passages import Passages
from components.corpus_gen.readers import ReadUnit
from components.corpus_gen.record.card import CARD_FILE, COUNTS_FILE
from components.corpus_gen.settings import CleaningSettings, CorpusSettings, PassageSettings
from components.corpus_gen.transforms import document_id
from components.io.shards import read_documents
from tests.support.examples.made_documents import make_documents

SETTINGS = CorpusSettings(
    segments="lines",
    bucket_bytes=3000,
    eval_fraction=0.3,
    cleaning=CleaningSettings(unicode_normalization="NFC", min_characters=12),
    passages=PassageSettings(unit="lines", window=2, min_count=3, keep=2, min_characters=20),
)


def expected(documents, settings):
    """The filtered documents by their definition, and the number of lines dropped: every document in memory."""
    filter_settings, window = settings.passages, settings.passages.window
    documents = [[unicodedata2.normalize("NFC", line) for line in d] for d in documents]
    whole = sorted({tuple(d) for d in documents if sum(map(len, d)) >= settings.cleaning.min_characters})

    def digest(content):
        return hashlib.blake2b(content, digest_size=8).digest()

    whole.sort(key=lambda d: digest(b"".join(digest(" ".join(line.split()).encode()) for line in d))[::-1])
    owners = collections.defaultdict(list)
    for number, lines in enumerate(whole):
        for window_lines in {lines[i : i + window] for i in range(len(lines) - window + 1)}:
            owners[window_lines].append(number)
    kept, dropped_lines, dropped_documents = set(), 0, 0
    for number, lines in enumerate(whole):
        gone = set()
        for i in range(len(lines) - window + 1):
            of_passage = owners[lines[i : i + window]]
            if len(of_passage) >= filter_settings.min_count and number not in of_passage[: filter_settings.keep]:
                gone |= set(range(i, i + window))
        copies = sum(tuple(d) == lines for d in documents)
        rest = tuple(line for i, line in enumerate(lines) if i not in gone)
        dropped_lines += copies * len(gone)
        if gone and sum(map(len, rest)) < filter_settings.min_characters:
            dropped_documents += copies
        else:
            kept.add(rest)
    repeated = sum(len(o) >= max(filter_settings.min_count, filter_settings.keep + 1) for o in owners.values())
    return kept, {"repeated_lines": dropped_lines, "repeated_passages": repeated}, dropped_documents


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Documents of own lines and of blocks that others have, in seven files; some occur twice."""
    rng = random.Random(0)
    # In two normal forms: passages are compared as the filters before leave them.
    blocks = [[f"Bl\u00f6ck {i}, line {j}." for j in range(rng.randint(2, 5))] for i in range(12)]
    documents = []
    for number in range(150):
        lines = []
        for part in range(rng.randint(1, 4)):
            if rng.random() < 0.5:
                form = rng.choice(["NFC", "NFD"])
                lines += [unicodedata2.normalize(form, line) for line in rng.choice(blocks)]
            else:
                lines += [f"Own line {number} {part} {rng.randrange(9)}."] * rng.randint(1, 2)
        documents.append(lines)
    documents += rng.sample(documents, 15) + [["Short."]] * 3
    rng.shuffle(documents)
    folder = tmp_path_factory.mktemp("corpus")
    paths = []
    for number in range(7):
        paths.append(str(folder / f"{number}.txt"))
        (folder / f"{number}.txt").write_text("\n\n".join("\n".join(d) for d in documents[number::7]))
    return paths, documents


@pytest.fixture(scope="module", autouse=True)
def much_small_work():
    """Files are cut, a unit of work has several runs, and there are several tables."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "MIN_WORK_BYTES", 2000)
        patch.setattr(passages, "TABLE_PASSAGES", 37)
        patch.setattr(passage_counts, "PARTITION_BYTES", 1000)
        yield


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """`whole(settings)`: (folder, files) of the whole corpus, made once."""

    @functools.cache
    def make(settings):
        folder = tmp_path_factory.mktemp("whole") / "out"
        return folder, make_documents(corpus[0], folder, settings)

    return make


def documents_in(output):
    return sorted(document for path in output.rglob("*.tfrecord") for document in read_documents(str(path)))


@pytest.mark.parametrize(("window", "min_count", "keep"), [(2, 3, 2), (1, 2, 0), (2, 2, 4), (3, 5, 1)], ids=str)
def test_passages_are_dropped_by_their_definition(corpus, whole, window, min_count, keep):
    some = PassageSettings("lines", window, min_count, keep, min_characters=20)
    settings = dataclasses.replace(SETTINGS, passages=some)
    kept, found, dropped = expected(corpus[1], settings)
    folder, files = whole(settings)
    assert documents_in(folder) == sorted(map(list, kept))
    counts = json.loads(files[COUNTS_FILE])
    assert counts["found"] == found and found["repeated_passages"] > 1
    assert counts["read"].get("dropped_repeated_too_short", 0) == dropped and counts["read"]["dropped_too_short"] == 3
    # Ids are those of the filtered text.
    ids = np.frombuffer(files["documents_read.u64"], "S8")
    assert sorted(ids) == sorted(document_id(list(d))[:8].rstrip(b"\0") for d in kept)


def test_the_same_bytes_for_any_order_of_reading_and_sizes_of_work(tmp_path, corpus, whole, monkeypatch):
    (paths, _), (_, files) = corpus, whole(SETTINGS)
    monkeypatch.setattr(readers, "MIN_WORK_BYTES", 700)
    monkeypatch.setattr(passages, "TABLE_PASSAGES", 11)
    monkeypatch.setattr(passage_counts, "PARTITION_BYTES", 300)
    one, two = dict(files), make_documents(paths[::-1], tmp_path / "two", SETTINGS)
    counts = [json.loads(files.pop(COUNTS_FILE)) for files in (one, two)]
    assert two == one and counts[0]["found"] == counts[1]["found"] and counts[0]["train"] == counts[1]["train"]
    assert "passages" not in "".join(one)  # intermediate files are removed


def test_names_and_places_of_files_do_not_matter(tmp_path, corpus, whole):
    """Which copy stays depends on the texts alone."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    others = [str(folder / f"{9 - i}.txt") for i in range(len(corpus[0]))]
    for path, other in zip(corpus[0], others, strict=True):
        os.link(path, other)
    make_documents(others, tmp_path / "out", SETTINGS)
    assert documents_in(tmp_path / "out") == documents_in(whole(SETTINGS)[0]) != []


def test_runs_hold_no_more_of_a_passage_than_needed(tmp_path):
    text = "\n\n".join(f"Own {i}.\nThe same.\nThe same, too." for i in range(1000))
    (tmp_path / "a.txt").write_text(text)
    step = HashPassages(SETTINGS, str(tmp_path / "hashes"))
    step.setup()
    runs = list(step.process((0, [ReadUnit(str(tmp_path / "a.txt"))])))
    pairs = sum(count for _, count in runs)
    # Three for the passage of the last two lines, and one for each document's first.
    assert pairs == 1000 + 3 * len(runs)


def test_memory_does_not_depend_on_the_text(tmp_path, monkeypatch):
    monkeypatch.setattr(passages, "TABLE_PASSAGES", 1 << 11)
    monkeypatch.setattr(passage_counts, "PARTITION_BYTES", 1 << 14)
    peaks = []
    for documents in (2_200, 6_600):
        folder = tmp_path / str(documents)
        folder.mkdir()
        # More text than the megabyte that is read at a time.
        with open(folder / "a.txt", "w") as file:
            file.writelines(f"{i:0500d}.\nLine {i % 500}.\nAnd line {i % 500}.\n\n" for i in range(documents))
        tracemalloc.start()
        step = HashPassages(SETTINGS, str(folder))
        step.setup()
        tables = _tables(list(step.process((0, [ReadUnit(str(folder / "a.txt"))]))), str(folder))
        repeated = sum(_write_table(i, tables, SETTINGS.passages) for i in range(tables.partitions))
        assert repeated == 500 and tables.partitions > 1 and len(tables.runs) > 1
        one = Passages(SETTINGS)
        one.start(tables.of_unit(0))
        dropped = collections.Counter()
        for i in range(documents):
            one([f"{i:0500d}.", f"Line {i % 500}.", f"And line {i % 500}."], dropped)
        assert dropped["repeated_lines"] == 2 * (documents - 2 * 500)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.3 * peaks[0] < 20e6, peaks


def test_a_corpus_without_repeated_passages_stays_as_it_is(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"First {i}.\nSecond {i}.\nThird {i}." for i in range(50)))
    off = dataclasses.replace(SETTINGS, passages=PassageSettings())
    with_it, without = (
        make_documents([str(tmp_path / "a.txt")], tmp_path / name, s) for name, s in (("a", SETTINGS), ("b", off))
    )
    counts = [json.loads(files.pop(COUNTS_FILE)) for files in (with_it, without)]
    # The card names the settings.
    assert with_it.pop(CARD_FILE) != without.pop(CARD_FILE)
    assert with_it == without and counts[0].pop("found") == {"repeated_passages": 0} and counts[0] == counts[1]


@pytest.mark.parametrize("text", ["", "One line of text."], ids=["no document", "no passage"])
def test_a_corpus_without_passages(tmp_path, text):
    (tmp_path / "a.txt").write_text(text)
    (tmp_path / "b.txt").write_text("Another line of text.")
    shards = make_documents([str(tmp_path / name) for name in ("a.txt", "b.txt")], tmp_path / "out", SETTINGS)
    assert sum(b"Another line" in content for content in shards.values()) == 1
