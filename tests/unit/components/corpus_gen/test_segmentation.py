import time

import pytest

from components.corpus_gen.plain_text import SPLITTER_CHARACTERS, segment, sentences
from components.corpus_gen.settings import CorpusSettings

LINES = CorpusSettings(segments="lines")


def test_segmentation():
    lines = ["Dr. Smith wrote 3.14. He", "left!  Did he?"]
    assert segment(lines, LINES) == lines
    assert segment(lines, CorpusSettings()) == ["Dr. Smith wrote 3.14.", "He left!", "Did he?"]
    chinese = ["这是一个句子。这是第二个。", "第三个。"]
    expected = ["这是一个句子。", "这是第二个。", "第三个。"]
    assert segment(chinese, CorpusSettings(language="zh")) == segment(chinese, CorpusSettings()) == expected


@pytest.mark.parametrize("text", ["One is here.  Two\tis! «Three»\u3000Four?  ", "x" * 5000, "ab " * 3000, ""])
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
    """Counted in characters passed to the splitter, whose own time is quadratic; the test takes seconds."""
    import sentencex

    shown = []

    def counted(language, text, split=sentencex.segment):
        shown.append(len(text))
        return split(language, text)

    monkeypatch.setattr(sentencex, "segment", counted)
    characters = 1_000_000
    start = time.process_time()
    segments = segment([(text * characters)[:characters]], CorpusSettings())
    assert max(shown) <= SPLITTER_CHARACTERS and sum(shown) < 1.1 * characters
    assert sum(map(len, segments)) > 0.75 * characters
    assert time.process_time() - start < 10
