"""Documents from plain text with any line ends and cuts, in constant memory."""

import gzip
import json
import time
import tracemalloc
from collections import Counter
from unittest import mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.corpus_gen import plain_text, readers
from components.corpus_gen.plain_text import SPLITTER_CHARACTERS, segment, sentences
from components.corpus_gen.readers import ReadUnit, read_unit
from components.corpus_gen.settings import CorpusSettings
from tests.support.examples.corpus_files import COMPRESSIONS, DOCUMENTS, TEXT, read, write


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "byte order mark"])
@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_line_ends_byte_order_marks_and_compression_make_no_difference(tmp_path, end, mark, compress):
    path = write(tmp_path / "a", compress((mark + TEXT.replace("\n", end)).encode()))
    assert read(path) == DOCUMENTS


def test_blank_lines_or_files_separate_documents(tmp_path):
    path = write(tmp_path / "a", "\n one \ntwo\n \t\u00a0\n\n\nthree")
    assert read(path) == [["one", "two"], ["three"]]
    assert read(path, documents="files") == [["one", "two", "three"]]


LINES = st.lists(
    st.sampled_from(["", " ", "\t", "\u00a0", "a", "bb bb", "ééé", "漢字", "x" * 30, "\0", "\ufeff"]), max_size=30
)


@mock.patch.object(readers, "MAX_STRANGE_SHARE", 1.0)  # NULs among the lines
@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.integers(1, 40), st.booleans())
def test_documents_do_not_depend_on_the_cuts(tmp_path_factory, lines, end, size, last_end):
    content = (end.join(lines) + end * last_end).encode()
    path = write(tmp_path_factory.mktemp("cut") / "a", content)
    settings = CorpusSettings(max_document_characters=50)
    whole = Counter()
    expected = read(path, whole, max_document_characters=50)
    counts, found = Counter(), []
    for start in range(0, len(content), size):
        found += read_unit(ReadUnit(str(path), start, start + size), settings, counts)
    assert [document.lines for document in found] == expected
    assert counts["read_documents"] == whole["read_documents"]
    assert counts["split_documents"] == whole["split_documents"]


@pytest.mark.parametrize("line", ["a few words\n", "words without an end "], ids=["many lines", "one line"])
def test_a_document_over_many_ranges_is_read_about_once(tmp_path, line):
    """A range that ends within a document stops there; reading on would take quadratic time."""
    content = (line * (3_000_000 // len(line))).encode()
    path, size = write(tmp_path / "a", content), 100_000
    counts = Counter()
    for start in range(0, len(content), size):
        found = list(read_unit(ReadUnit(str(path), start, start + size), CorpusSettings(), counts))
        assert bool(found) == (start == 0)
    # The first range reads all of it, each other range only itself.
    assert counts["read_bytes"] <= 2 * len(content) + 40 * plain_text.BLOCK_BYTES // 16


@given(LINES.filter(lambda lines: "\0" not in lines), st.integers(1, 20), st.integers(1, 9))
def test_long_documents_are_cut_and_nothing_is_lost(tmp_path_factory, lines, limit, block):
    path = write(tmp_path_factory.mktemp("long") / "a", "\n".join(lines))
    counts = Counter()
    before, plain_text.BLOCK_BYTES = plain_text.BLOCK_BYTES, block
    try:
        parts = read(path, counts, max_document_characters=limit)
    finally:
        plain_text.BLOCK_BYTES = before
    whole = read(path)
    assert "".join("".join(part) for part in parts).replace(" ", "") == "".join(
        "".join(document) for document in whole
    ).replace(" ", "")
    assert all(sum(map(len, part)) <= limit for part in parts)
    assert counts["read_documents"] == len(whole)
    longer = sum(sum(map(len, document)) > limit for document in whole)
    # The blank at a cut is removed: the remainder may fit.
    assert (len(parts) > len(whole)) <= counts["split_documents"] <= longer


# Words and blanks, so that lines exceed the limit, a block and a range.
LONG_LINES = st.text(st.sampled_from("aé漢   \t\u3000\0\n"), max_size=120)


@mock.patch.object(readers, "MAX_STRANGE_SHARE", 1.0)  # NULs among the words
@given(LONG_LINES, st.integers(1, 12), st.integers(16, 64), st.integers(1, 12))
@example("aé aé" + " " * 80, 5, 16, 7)
def test_the_cuts_of_a_long_line_depend_only_on_its_text(tmp_path_factory, text, limit, block, size):
    """Independent of the source: blocks, ranges, compressed files, or a field of a record."""
    folder, limits = tmp_path_factory.mktemp("long"), {"max_document_characters": limit}
    path = write(folder / "a", text)
    expected = read(path, **limits)
    assert read(write(folder / "a.gz", gzip.compress(text.encode())), **limits) == expected
    with mock.patch.object(plain_text, "BLOCK_BYTES", block):
        assert read(path, **limits) == expected
        assert read(write(folder / "a.gz", gzip.compress(text.encode())), **limits) == expected
        units = [ReadUnit(str(path), start, start + size) for start in range(0, len(text.encode()), size)]
        found = [each.lines for unit in units for each in read_unit(unit, CorpusSettings(**limits), Counter())]
    assert found == expected
    if "\n" not in text:
        record = write(folder / "a.jsonl", json.dumps({"text": text}))
        assert read(record, **limits) == expected


def test_a_long_line_is_cut_at_blanks(tmp_path):
    path = write(tmp_path / "a", "word " * 10)
    assert read(path, max_document_characters=12) == [["word word"]] * 5
    assert read(path, max_document_characters=14) == [["word word word"]] * 3 + [["word"]]
    assert read(write(path, "x" * 25), max_document_characters=10) == [["x" * 10], ["x" * 10], ["x" * 5]]


def test_memory_does_not_grow_with_a_line(tmp_path):
    path = tmp_path / "a"
    with path.open("wb") as file:
        for _ in range(20):
            file.write(b"no end " * 150_000)
    tracemalloc.start()
    try:
        characters = sum(
            len(line) for d in read_unit(ReadUnit(str(path)), CorpusSettings(), Counter()) for line in d.lines
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert characters > 20e6 and peak < 15e6


def test_invalid_utf8_is_replaced(tmp_path):
    counts = Counter()
    path = write(tmp_path / "a", b"caf\xe9\xff\n\ngood\n" + b" " * 500)
    assert read(path, counts) == [["caf\ufffd\ufffd"], ["good"]]
    assert counts["invalid_utf8_bytes"] == 2


def test_nul_characters_are_removed(tmp_path):
    counts = Counter()
    path = write(tmp_path / "a", "one\0 line\n" + "and many more\n" * 20 + "\n\0\n\nlast\n")
    documents = read(path, counts)
    assert documents[0][0] == "one line" and documents[1:] == [["last"]]
    assert counts["nul_characters"] == 2


AS_LINES = CorpusSettings(segments="lines")


@pytest.mark.parametrize("code", ["german", "DE", "de_at", ""])
def test_another_word_than_a_code_which_the_splitter_would_take_for_english_is_refused(code):
    with pytest.raises(ValueError, match=rf"corpus\.language is '{code}'; it must be a code in small letters"):
        CorpusSettings(language=code)
    assert {CorpusSettings(language=code).language for code in ("nds", "de-at")} == {"nds", "de-at"}


def test_segmentation():
    lines = ["Dr. Smith wrote 3.14. He", "left!  Did he?"]
    assert segment(lines, AS_LINES) == lines
    assert segment(lines, CorpusSettings()) == ["Dr. Smith wrote 3.14.", "He left!", "Did he?"]
    chinese = ["这是一个句子。这是第二个。", "第三个。"]
    expected = ["这是一个句子。", "这是第二个。", "第三个。"]
    assert segment(chinese, CorpusSettings(language="zh")) == segment(chinese, CorpusSettings()) == expected


@pytest.mark.parametrize(
    "text",
    ["One is here.  Two\tis! «Three»\u3000Four?  ", "Vitamin C\u00a0. Eat\u202f!", "x" * 5000, "ab " * 3000, ""],
)
def test_sentences_are_the_whole_text(text):
    assert "".join(sentences(text, "en")) == text


def test_sentences_across_pieces_for_the_splitter_stay_whole():
    # 41 characters each: 4096 is not a multiple, so pieces end inside sentences.
    expected = [f"This is the sentence with number {i:06d}." for i in range(1000)]
    assert segment([" ".join(expected)], CorpusSettings()) == expected
    assert segment(expected, CorpusSettings()) == expected


def test_a_sentence_without_an_end_is_cut_at_blanks():
    words = "lorem ipsum " * 3000
    cut = segment([words], CorpusSettings())
    assert " ".join(cut) == words.strip()
    assert len(cut) == 9 and max(map(len, cut)) <= SPLITTER_CHARACTERS
    no_blank = "x" * (2 * SPLITTER_CHARACTERS + 1)
    assert segment([no_blank], CorpusSettings()) == [no_blank[:SPLITTER_CHARACTERS]] * 2 + ["x"]


@pytest.mark.parametrize("text", ["word ", "x", "这是一个句子。", "这是", "A sentence. "])
def test_work_on_a_very_long_line_is_linear(monkeypatch, text):
    """Counted in characters passed to the splitter, whose own time is quadratic."""
    import sentencex

    shown = []

    def counted(language, text, split=sentencex.segment):
        shown.append(len(text))
        return split(language, text)

    monkeypatch.setattr(sentencex, "segment", counted)
    characters = 200_000
    start = time.process_time()
    segments = segment([(text * characters)[:characters]], CorpusSettings())
    assert max(shown) <= SPLITTER_CHARACTERS and sum(shown) < 1.1 * characters
    assert sum(map(len, segments)) > 0.75 * characters
    assert time.process_time() - start < 5
