import unicodedata2
from hypothesis import example, given
from hypothesis import strategies as st

from components.corpus_gen.words import words_and_marks, words_of


@given(st.text(st.characters(max_codepoint=127)))
@example("".join(f"a{chr(c)}b{chr(c)} " for c in range(128)))
def test_ascii_words_are_those_of_the_tokenizer(text):
    for split in (words_of, words_and_marks):
        with_other, without = split(f"{text} é"), split(text)
        assert with_other == [*without, b"e"]


def test_words_and_marks():
    assert b" ".join(words_and_marks("The 23rd café's, 你好！ﾟ９")).decode() == "the 00rd cafe ' s , 你 好 ！ ﾟ９"
    assert words_and_marks("Don't  stop\t(1999)!") == b"don ' t stop ( 0000 ) !".split()


def test_words_of_any_script():
    words = [word.decode() for word in words_of("Ärger, 你好！ ｔwo ไทย ひら «한국» 3€")]
    # Uncased means NFD, so Hangul is in jamo; the euro sign is not punctuation for BERT.
    assert words == [
        "arger",
        "你",
        "好",
        "ｔwo",
        "ไ",
        "ท",
        "ย",
        "ひ",
        "ら",
        unicodedata2.normalize("NFD", "한국"),
        "3€",
    ]
