import unicodedata2
from hypothesis import example, given
from hypothesis import strategies as st

from components.corpus_gen.words import words_of


@given(st.text(st.characters(max_codepoint=127)))
@example("".join(f"a{chr(c)}b{chr(c)} " for c in range(128)))
def test_ascii_words_are_those_of_the_tokenizer(text):
    assert words_of(f"{text} é") == [*words_of(text), b"e"]


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
