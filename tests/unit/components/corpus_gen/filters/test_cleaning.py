import os
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import unicodedata2
from hypothesis import given
from hypothesis import strategies as st

from components.corpus_gen.filters import cleaning
from components.corpus_gen.filters.cleaning import OTHER_LANGUAGE, RULES, TOO_SHORT, Cleaner
from components.corpus_gen.languages import CHARACTERS, detectable_languages, parse_languages, share_in_languages
from components.corpus_gen.settings import CleaningSettings

ENGLISH = "All human beings are born free and equal in dignity and rights. They are endowed with reason and conscience."

GERMAN = "Alle Menschen sind frei und an Würde und Rechten gleich geboren, sie sind mit Vernunft und Gewissen begabt."
CHINESE = "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"
KOREAN = (
    "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았다."
)
HEBREW = "כל בני אדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון."


def clean(lines, **settings):
    return Cleaner(CleaningSettings(**settings))(lines, Counter())


def test_cleaning_is_off_by_default():
    lines = ["e\u0301", "!!!"]
    cleaned, reason = clean(lines)
    assert cleaned is lines and reason == ""


@pytest.mark.parametrize(
    ("form", "given", "expected"),
    [
        ("none", "e\u0301 ﬁ", "e\u0301 ﬁ"),
        ("NFC", "e\u0301 ﬁ", "é ﬁ"),
        ("NFKC", "e\u0301 ﬁ", "é fi"),
        ("NFC", "\u1112\u1161\u11ab", "한"),
        ("NFKC", "ｆｕｌｌ　width", "full width"),
        # Compatibility forms that begin or end with a blank.
        ("NFKC", "\u00b4a\u00b8", "\u0301a \u0327"),
    ],
)
def test_normal_forms(form, given, expected):
    assert clean([given, "plain"], unicode_normalization=form) == ([expected, "plain"], "")


def test_unicode_is_newer_than_pythons():
    """Normal forms depend on the library, not on Python; U+A7F1 is from Unicode 17, U+16D68 from 16."""
    assert unicodedata2.unidata_version == "18.0.0"
    assert clean(["\ua7f1\U00016d63\U00016d67"], unicode_normalization="NFKC")[0] == ["S\U00016d69"]


def test_a_normal_form_leaves_no_blank_line():
    for point in range(0x110000):
        char = chr(point)
        if char.strip():
            assert cleaning.normalize(char, "NFKC"), hex(point)


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), max_size=3), st.sampled_from(["NFC", "NFKC"]))
def test_normalizing_twice_changes_nothing(lines, form):
    once, _ = clean(lines, unicode_normalization=form)
    assert clean(once, unicode_normalization=form)[0] == once


def test_short_documents_are_dropped():
    assert clean(["abc", "de"], min_characters=5) == (["abc", "de"], "")
    assert clean(["abc", "de"], min_characters=6) == (["abc", "de"], TOO_SHORT)
    # Two code points, one character: the limit applies to the cleaned text.
    assert clean(["e\u0301"], min_characters=2)[1] == ""
    assert clean(["e\u0301"], min_characters=2, unicode_normalization="NFC")[1] == TOO_SHORT


def test_documents_in_other_languages_are_dropped():
    kept = [clean([text], languages="en, ko")[1] == "" for text in (ENGLISH, GERMAN, CHINESE, KOREAN, HEBREW)]
    assert kept == [True, False, False, True, False]
    assert clean([GERMAN], languages="en")[1] == OTHER_LANGUAGE
    # Only names and numbers: no language is certain.
    assert clean(["R2-D2 4711"], languages="en")[1] == OTHER_LANGUAGE


def test_a_document_in_several_languages_is_judged_by_its_share():
    mixed = [ENGLISH, CHINESE]
    share = share_in_languages("\n".join(mixed), frozenset({"en"}))
    assert 0.3 < share < 0.7
    assert clean(mixed, languages="en", min_language_fraction=share)[1] == ""
    assert clean(mixed, languages="en", min_language_fraction=share + 0.01)[1] == OTHER_LANGUAGE
    assert clean(mixed, languages="en,zh", min_language_fraction=0.95)[1] == ""


def test_only_the_beginning_of_a_document_is_examined():
    english = (ENGLISH + " ") * 20
    assert len(english) > CHARACTERS
    assert share_in_languages(english + GERMAN * 100, frozenset({"en"})) > 0.95


def test_languages_have_current_codes():
    assert {"en", "de", "zh", "ko", "ja", "he", "jv", "haw"} <= detectable_languages()
    # Ossetian has a code, but CLD2 has no data for it.
    assert not {"iw", "jw", "zh-Hant", "xx-Goth", "tlh", "os"} & detectable_languages()
    assert share_in_languages(HEBREW, frozenset({"he"})) > 0.9
    # Traditional characters are Chinese too.
    assert share_in_languages("人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心。", frozenset({"zh"})) > 0.9


def test_unknown_languages_are_named():
    message = r"corpus.cleaning.languages: languages that cannot be detected: 'deu', 'xx'; choose from .*\bde, .*\ben, "
    with pytest.raises(ValueError, match=message):
        CleaningSettings(languages="en,xx,deu")
    with pytest.raises(ValueError, match="detected: '';"):
        CleaningSettings(languages="en,")
    with pytest.raises(ValueError, match=r"min_language_fraction is 0.96; it must be in \[0, 0.95\]"):
        CleaningSettings(min_language_fraction=0.96)
    assert parse_languages(" ") == frozenset()
    assert parse_languages("en , de") == {"en", "de"}


def test_characters_that_cld2_rejects_are_removed():
    refused = "\0\x08\x0b\x1f\x7f\x9f\ud800\udfff\ufdd0\ufdef\uffff\U0010fffe\U0001ffff"
    assert share_in_languages(refused.join(ENGLISH.split(" ")), frozenset({"en"})) > 0.9
    for start in range(0, 0x110000, CHARACTERS):
        share_in_languages("".join(map(chr, range(start, min(start + CHARACTERS, 0x110000)))), frozenset({"en"}))


def test_rules_are_checked_in_order():
    assert list(RULES) == [TOO_SHORT, OTHER_LANGUAGE]
    assert clean(["!?"], min_characters=3, languages="en")[1] == TOO_SHORT
    assert clean([GERMAN], min_characters=2, languages="en")[1] == OTHER_LANGUAGE
    assert clean([ENGLISH], min_characters=2, languages="en")[1] == ""


def test_a_document_without_lines():
    assert clean([], unicode_normalization="NFKC") == ([], "")
    assert clean([], min_characters=1)[1] == TOO_SHORT
    assert clean([], languages="en")[1] == OTHER_LANGUAGE


@given(st.lists(st.text(st.characters(), max_size=40), max_size=4))
def test_cleaning_any_text(lines):
    settings = {"unicode_normalization": "NFKC", "min_characters": 3, "languages": "en"}
    cleaned, reason = clean(lines, **settings)
    assert len(cleaned) == len(lines) and reason in {"", *RULES}


@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is unset")
def test_human_rights_in_21_languages():
    names = "afr bul deu_1901 ell_monotonic eng est fra guj isl jpn kan khm lao mal mya pol por_BR slk swe tam urd"
    codes = "af bg de el en et fr gu is ja kn km lo ml my pl pt sk sv ta ur"
    with zipfile.ZipFile(Path(os.environ["BERT_DATA_DIR"], "corpus_nltk", "udhr2_even.zip")) as texts:
        for name, code in zip(names.split(), codes.split(), strict=True):
            lines = texts.read(f"udhr2/{name}.txt").decode().split("\n")[10:30]
            assert clean(lines, languages=code)[1] == "", code
            others = ",".join(sorted(set(codes.split()) - {code}))
            assert clean(lines, languages=others, min_language_fraction=0.1)[1] == OTHER_LANGUAGE, code
