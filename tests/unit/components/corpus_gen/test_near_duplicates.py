import glob
import hashlib
import random
import tracemalloc

import apache_beam as beam
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.corpus_gen import near_duplicates
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.near_duplicates import (
    CANDIDATE_PROBABILITY,
    LEADERS,
    MINHASHES,
    FindNearDuplicates,
    bands_and_rows,
    read_dropped,
    signature,
    write_bands,
)
from components.corpus_gen.readers import read_units
from components.corpus_gen.record.tally import SourceNames
from components.corpus_gen.settings import CleaningSettings, CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS, hash_range, hash_slot, partition_range, read_rows
from components.corpus_gen.transforms import WriteRuns
from tests.support.constants import with_constants

SETTINGS = CleaningSettings(near_duplicates=True)
# A shingle is a word, which makes similarities easy to construct.
WORDS = with_constants(CleaningSettings, near_duplicates=True, shingle_words=1)


def identity(number):
    return number.to_bytes(near_duplicates.ID_BYTES, "big")


def numbers(*segments, settings=SETTINGS):
    return np.frombuffer(signature(list(segments), settings), "<u4")


def pair(similarity, shingles, seed):
    """Two documents with `words` distinct words in total, of which this share is common."""
    words = [f"w{seed}x{i}" for i in range(shingles)]
    common = round(similarity * shingles)
    middle = (common + shingles) // 2
    return " ".join(words[:middle]), " ".join(words[:common] + words[middle:])


def found_by(signatures, settings=SETTINGS):
    """Ids to drop, without a runner and files."""
    similarity = settings.near_duplicate_similarity
    return ids_of(near_duplicates._compare(near_duplicates._bands(signatures, *bands_and_rows(similarity)), similarity))


def ids_of(dropped):
    ids = {row.tobytes() for row in dropped}
    assert len(ids) == len(dropped)
    return ids


def dropped_by_runs(folder, *runs, max_bytes=near_duplicates.PARTITION_BYTES):
    """Ids that FindNearDuplicates drops in runs with these documents, in the slots of each split."""
    settings = CorpusSettings(cleaning=SETTINGS, eval_fraction=0.5)
    written = [write_bands(f"{folder}/{number}.bands", run, SETTINGS) for number, run in enumerate(runs)]
    with pytest.MonkeyPatch.context() as patch, beam.Pipeline(runner="FnApiRunner") as pipeline:
        patch.setattr(near_duplicates, "PARTITION_BYTES", max_bytes)
        _ = pipeline | beam.Create(written) | FindNearDuplicates(settings, str(folder))
    tables = sorted(glob.glob(f"{folder}/*.dropped"))
    return [read_dropped(tables, *hash_range(split, 0, 1)) for split in SPLITS]


def test_a_signature_never_changes():
    """On any machine, Python and NumPy. Made by this code with NumPy 1.26 on Python 3.11 and NumPy 2.4 on 3.13."""
    texts = [
        "The quick brown fox jumps over the lazy dog.",
        "Zoë’s café — 日本語のテキスト สวัสดีชาวโลก",
        "",
        "x " * 9999,
    ]
    digests = [hashlib.sha256(signature([text], SETTINGS)).hexdigest()[:16] for text in texts]
    assert digests == ["5884c3c37a36b1e3", "4ab1f62ff081248e", "777ca3b7442307c4", "228c3b716994ec3a"]


def test_equal_words_have_equal_signatures():
    expected = numbers("It was the best of times, it was the worst of times.").tolist()
    assert len(expected) == MINHASHES and len(signature([], SETTINGS)) == MINHASHES * 4
    for segments in (
        ["It was the best of times", "it was the worst", "of times"],
        ["IT WAS the best -- of times; it was the 'worst' of times"],
        ["It was the bést of times…\tit was\r\nthe worst of times"],
        ["it was\x01 the best of\u00a0times it was the worst of times"],
    ):
        assert numbers(*segments).tolist() == expected, segments
    assert numbers("It was the worst of times, it was the best of times.").tolist() != expected
    # Shingles are a set: repetitions do not count.
    assert numbers("a b a b a b a b").tolist() == numbers("a b a b a b a b a b a b").tolist()


@pytest.mark.parametrize(
    "text", ["人人生而自由在尊严和权利上一律平等他们赋有理性和良心", "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์"]
)
def test_one_more_letter_changes_few_shingles_without_blanks(text):
    """One change in about 25 words makes 5 new shingles."""
    middle = len(text) // 2
    equal = (numbers(text) == numbers(text[:middle] + text[0] + text[middle:])).mean()
    assert 0.5 < equal < 0.95


def test_short_documents_are_one_shingle():
    assert numbers("a b c").tolist() == numbers("A, b: C!").tolist()
    assert len({tuple(numbers(text)) for text in ("", "a", "a b", "b a", "a b c", "a b c d e", "a b c d e f")}) == 7
    # Without any word.
    assert numbers("...").tolist() == numbers().tolist()


def test_shingles_have_the_configured_length():
    one, other = "a b c d e f g h", "a b c d x f g h"
    shares = []
    for words in (1, 2, 5):
        settings = with_constants(CleaningSettings, near_duplicates=True, shingle_words=words)
        shares.append((numbers(one, settings=settings) == numbers(other, settings=settings)).mean())
    # Jaccard similarities: 7 of 9, 5 of 9, 0 of 8.
    assert shares == pytest.approx([7 / 9, 5 / 9, 0], abs=0.12)


@pytest.mark.parametrize("words", [3, 4, 100])
def test_shingles_of_all_blocks_count(words, monkeypatch):
    words = [f"w{i}" for i in range(words)]
    expected = np.min([numbers(word, settings=WORDS) for word in words], axis=0)
    monkeypatch.setattr(near_duplicates, "_BLOCK", 3)
    assert numbers(" ".join(words), settings=WORDS).tolist() == expected.tolist()


def test_a_large_document_takes_little_memory():
    """A word takes about 50 bytes; its MinHashes, all at once, would take 512."""
    text = "word " * 200_000
    tracemalloc.start()
    signature([text], SETTINGS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 25e6


@pytest.mark.parametrize("similarity", [0.2, 0.8])
@pytest.mark.parametrize("shingles", [40, 300])
def test_equal_numbers_estimate_the_similarity(similarity, shingles):
    equal = []
    for seed in range(300):
        one, other = pair(similarity, shingles, seed)
        equal.append((numbers(one, settings=WORDS) == numbers(other, settings=WORDS)).mean())
    deviation = (similarity * (1 - similarity) / MINHASHES) ** 0.5
    assert np.mean(equal) == pytest.approx(similarity, abs=4 * deviation / 300**0.5)
    # As expected for independent orders.
    assert np.std(equal) == pytest.approx(deviation, rel=0.2)


def test_bands_and_rows():
    """The table of the docstring, and the guaranteed probability for any similarity."""
    table = {0.5: (35, 3), 0.7: (17, 4), 0.8: (16, 6), 0.9: (11, 10)}
    assert {similarity: bands_and_rows(similarity) for similarity in table} == table
    for similarity in np.arange(0.04, 1, 0.01).tolist():
        bands, rows = bands_and_rows(similarity)
        assert bands * rows <= MINHASHES
        assert 1 - (1 - similarity**rows) ** bands >= CANDIDATE_PROBABILITY
        assert 1 - (1 - similarity**rows) ** (bands - 1) < CANDIDATE_PROBABILITY
        assert 1 - (1 - similarity ** (rows + 1)) ** (MINHASHES // (rows + 1)) < CANDIDATE_PROBABILITY
    assert bands_and_rows(0.01) == (MINHASHES, 1)
    assert bands_and_rows(0.9999) == (1, 100)


@pytest.mark.parametrize(
    ("similarity", "probability"), [(0.6, 0), (0.7, 0.01), (0.75, 0.12), (0.8, 0.55), (0.85, 0.95), (0.9, 1), (0.95, 1)]
)
def test_detection_has_the_documented_probability(similarity, probability):
    tries = 300
    signatures = []
    for seed in range(tries):
        for place, text in enumerate(pair(similarity, 200, seed)):
            signatures.append((identity(2 * seed + place), signature([text], WORDS)))
    found = found_by(signatures)
    # Always the larger id, and no documents of different pairs.
    assert found <= {identity(2 * seed + 1) for seed in range(tries)}
    assert len(found) / tries == pytest.approx(
        probability, abs=0.01 + 3.5 * (probability * (1 - probability) / tries) ** 0.5
    )


def planted(random_numbers):
    """(id, signature) pairs of groups of one to six near duplicates, one of them three times; ids to drop."""
    signatures, to_drop = [], set()
    for group in range(40):
        words = [f"g{group}w{i}" for i in range(300)]
        ids = [random_numbers.randbytes(16) for _ in range(1 + group % 6)]
        for place, of_document in enumerate(ids):
            text = " ".join([*words[: 10 * place], "other", *words[10 * place + 1 :]])
            signatures.append((of_document, signature([text], SETTINGS)))
        to_drop.update(set(ids) - {min(ids, key=lambda one: one[8:])})
    return [*signatures, signatures[0], signatures[0], signatures[1], signatures[1]], to_drop


def test_the_smallest_id_of_a_group_is_kept():
    signatures, to_drop = planted(random.Random(1))
    assert found_by(signatures) == to_drop
    # The first bytes of an id decide what is held out: of six copies it is not the one with the smallest.
    kept = [one[0] for one, _ in signatures[:-4] if one not in to_drop]
    assert 100 < np.mean(kept) < 155


@pytest.mark.parametrize("max_bytes", [near_duplicates.PARTITION_BYTES, 5000])
@pytest.mark.parametrize("size", [3, 1000])
def test_order_runs_and_partitions_do_not_matter(tmp_path, size, max_bytes):
    signatures, to_drop = planted(random.Random(1))
    random.Random(size).shuffle(signatures)
    runs = [signatures[start : start + size] for start in range(0, len(signatures), size)]
    dropped = dropped_by_runs(tmp_path, *runs, max_bytes=max_bytes)
    for split, ids in zip(SPLITS, dropped, strict=True):
        assert ids == {one for one in to_drop if hash_slot(one, 0.5) in range(*hash_range(split, 0, 1))}
    assert len(glob.glob(f"{tmp_path}/*.dropped")) == (1 if max_bytes > 5000 else 1 + len(signatures) * 16 * 88 // 5000)


def test_a_worker_writes_runs_of_a_bounded_size(tmp_path, monkeypatch):
    monkeypatch.setattr(near_duplicates, "RUN_BYTES", 2 * 16 * 88)
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(f"Document {number}." for number in range(5)))
    (units,) = read_units([InputFile(str(path), 70)], CorpusSettings())
    writer = WriteRuns(CorpusSettings(cleaning=SETTINGS), SourceNames.of([str(path)], [""]), str(tmp_path))
    writer.setup()
    runs = [output.value for output in writer.process((0, units)) if getattr(output, "tag", "") == WriteRuns.BANDS]
    assert [count for _, count in runs] == [2 * 16, 2 * 16, 16] and len(dict(runs)) == 3


def test_memory_of_a_partition_is_bounded(tmp_path, monkeypatch):
    """2,000 documents, 2.8 MB of rows, in partitions of 100 KB."""
    signatures = [(identity(number), signature([str(number)], SETTINGS)) for number in range(2000)]
    run = write_bands(f"{tmp_path}/0.bands", signatures, SETTINGS)
    monkeypatch.setattr(near_duplicates, "PARTITION_BYTES", 100_000)
    tracemalloc.start()
    near_duplicates._write_dropped(7, [run], CorpusSettings(cleaning=SETTINGS), str(tmp_path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.4e6  # the header of a table takes half of it


@pytest.mark.parametrize(("bands", "rows"), [(16, 6), (35, 3), (MINHASHES, 1), (1, 100)])
def test_a_band_consists_of_rows_of_the_signature(bands, rows):
    def hashes(minhashes):
        return set(near_duplicates._bands([(identity(1), minhashes.tobytes())], bands, rows)["band"].tolist())

    one = numbers("some words of a document")
    assert len(hashes(one)) == bands
    for place in range(MINHASHES):
        other = one.copy()
        other[place] += 1
        assert len(hashes(one) & hashes(other)) == (bands - 1 if place < bands * rows else bands)


def test_bands_are_spread_over_partitions(tmp_path):
    signatures = [(identity(number), signature([str(number)], SETTINGS)) for number in range(2000)]
    path, count = write_bands(f"{tmp_path}/0.bands", signatures, SETTINGS)
    sizes = [len(read_rows(path, *partition_range(number, 1000), near_duplicates._ROW)) for number in range(1000)]
    assert sum(sizes) == count == 2000 * 16 and max(sizes) < 3 * count / 1000


def test_no_documents_to_compare(tmp_path):
    one = (identity(1), signature(["one"], SETTINGS))
    assert dropped_by_runs(tmp_path / "one", [one, one]) == [set(), set()]
    assert dropped_by_runs(tmp_path / "none") == [set(), set()]


def rows_in_one_bucket(documents):
    """Rows as from `_bands` for (id, sketch) pairs with one common band."""
    rows = np.zeros(len(documents), near_duplicates._ROW)
    for row, (number, sketch) in zip(rows, documents, strict=True):
        row["id"] = np.frombuffer(identity(number), ">u8")
        row["sketch"] = sketch
    return rows


def differing(*places):
    """A sketch, two MinHashes per byte, that differs from a zero sketch in these MinHashes."""
    sketch = np.zeros(MINHASHES // 2, np.uint8)
    for place in places:
        sketch[place // 2] |= 0x10 if place % 2 else 0x01
    return sketch


@pytest.mark.parametrize(("similarity", "least_equal"), [(0.8, 104), (0.5, 68), (0.77, 101)])
def test_documents_with_the_minimum_similarity_are_near_duplicates(similarity, least_equal):
    """Equal: this share of the MinHashes and, by chance, one in 16 of the others: 128 * (0.8 + 0.2 / 16) = 104."""
    for equal in range(least_equal - 2, least_equal + 3):
        sketch = differing(*range(MINHASHES - equal))
        found = near_duplicates._compare(rows_in_one_bucket([(1, 0), (2, sketch)]), similarity)
        assert ids_of(found) == ({identity(2)} if equal >= least_equal else set())


def test_documents_similar_only_to_a_dropped_one_are_kept():
    """1 and 2 are alike, 2 and 3 are alike, 1 and 3 are not."""
    two, three = differing(*range(20)), differing(*range(40))
    assert ids_of(near_duplicates._compare(rows_in_one_bucket([(1, 0), (2, two), (3, three)]), 0.8)) == {identity(2)}
    assert ids_of(near_duplicates._compare(rows_in_one_bucket([(2, two), (3, three)]), 0.8)) == {identity(3)}
    assert not len(near_duplicates._compare(rows_in_one_bucket([(1, 0), (3, three)]), 0.8))


def test_the_number_of_leaders_per_bucket_is_limited():
    """Documents of LEADERS + 1 kinds in one band: the last kind is not compared."""
    kinds = [0x11 * kind for kind in range(16)] + [0x1F]
    assert len(kinds) == LEADERS + 1
    documents = [(place + 100 * again, kind) for place, kind in enumerate(kinds) for again in range(3)]
    found = ids_of(near_duplicates._compare(rows_in_one_bucket(documents), 0.8))
    assert found == {identity(number) for number, kind in documents if number >= 100 and kind != 0x1F}


def test_a_huge_bucket_takes_one_comparison_per_document(monkeypatch):
    compared = []
    equal = near_duplicates._equal
    monkeypatch.setattr(near_duplicates, "_equal", lambda one, other: compared.append(len(one)) or equal(one, other))
    size = 20_000
    found = ids_of(near_duplicates._compare(rows_in_one_bucket([(i, 7) for i in range(size)]), 0.8))
    assert len(found) == size - 1 and identity(0) not in found
    assert sum(compared) == size - 1
    compared.clear()
    assert not len(near_duplicates._compare(rows_in_one_bucket([(i, i % 256) for i in range(256)]), 0.8))
    assert sum(compared) <= LEADERS * 256


def test_ids_sort_as_bytes():
    """Whichever byte differs, and by how much."""
    text = signature(["one and the same text of some words"], SETTINGS)
    for place in range(16):
        small, large = bytearray(b"\x80" * 16), bytearray(b"\x80" * 16)
        small[place], large[place] = 0x7F, 0xFF
        assert found_by([(bytes(large), text), (bytes(small), text)]) == {bytes(large)}
    # NUL bytes at the end are part of an id.
    assert found_by([(b"\1" + bytes(15), text), (bytes(16), text)]) == {b"\1" + bytes(15)}


@given(st.lists(st.text(st.characters(), max_size=60), max_size=4), st.integers(1, 9))
def test_any_text_has_a_signature(segments, shingle_words):
    assert len(signature(segments, with_constants(CleaningSettings, shingle_words=shingle_words))) == 4 * MINHASHES
