"""Expected values by hand; and datatrove's own decisions, in golden/datatrove_quality.json.

`benchmarks/corpus/compare_datatrove.py --record` of commit c025cb7 wrote that file; its documents are invented.
"""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from components.corpus_gen.filters.english_words import MAX_STRETCH, split_stretch, split_words
from components.corpus_gen.filters.quality import RULES, Quality, count_sentences, gopher_rule
from components.corpus_gen.settings import C4_RULES, CorpusSettings, QualitySettings
from tests.support.constants import with_constants

GOLDEN = json.loads((Path(__file__).parent / "golden/datatrove_quality.json").read_text(encoding="utf-8"))
SWITCHES = ("gopher_repetition", "gopher", "c4", "fineweb")


def judge(lines, **settings):
    """(lines, rule, what was found) of a document."""
    found = Counter()
    return *Quality(with_constants(QualitySettings, **settings))(lines, found), found


@pytest.mark.parametrize("number", range(len(GOLDEN)))
def test_decisions_are_those_of_datatrove(number):
    recorded = GOLDEN[number]
    for switch in SWITCHES:
        lines, rule, _ = judge(recorded["lines"], **{switch: True})
        assert rule == recorded[switch], switch
        expected = recorded["c4_lines"] if switch == "c4" and not rule else None
        assert lines == (expected or recorded["lines"])


def test_the_recorded_decisions_have_most_rules():
    assert len(GOLDEN) >= 50
    assert len({recorded[switch] for recorded in GOLDEN for switch in SWITCHES}) >= 24  # "" is one


# Ten words with 30 letters; "?" is none. A mean length of 3, two stop words.
WORDS = "the owl and mice ran far off so late by ?"


@pytest.mark.parametrize(
    "name, limit, rule",
    [
        ("gopher_min_words", 11, "gopher_few_words"),
        ("gopher_min_words", 10, ""),
        ("gopher_max_words", 9, "gopher_many_words"),
        ("gopher_max_words", 10, ""),
        ("gopher_min_word_length", 3.01, "gopher_short_words"),
        ("gopher_min_word_length", 3, ""),
        ("gopher_max_word_length", 2.99, "gopher_long_words"),
        ("gopher_max_word_length", 3, ""),
        ("gopher_min_alphabetic_words", 10 / 11 + 0.01, "gopher_non_alphabetic"),
        ("gopher_min_alphabetic_words", 10 / 11, ""),
        ("gopher_min_stop_words", 3, "gopher_stop_words"),
        ("gopher_min_stop_words", 2, ""),
    ],
)
def test_gophers_rules_on_words(name, limit, rule):
    assert judge([WORDS], gopher=True, **({"gopher_min_words": 0} | {name: limit}))[1] == rule


@pytest.mark.parametrize(
    "lines, name, share, rule",
    [
        (["a # b # c"], "gopher_max_symbols", 2 / 5, "gopher_hashes"),
        (["a ... b… c"], "gopher_max_symbols", 2 / 5, "gopher_ellipses"),
        (["- a", "•b", "c -"], "gopher_max_bullet_lines", 2 / 3, "gopher_bullet_lines"),
        (["a...", "b…", "...c"], "gopher_max_ellipsis_lines", 2 / 3, "gopher_ellipsis_lines"),
    ],
)
def test_gophers_rules_on_symbols_and_lines(lines, name, share, rule):
    loose = {f"gopher_max_{other}": 9 for other in ("symbols", "bullet_lines", "ellipsis_lines")}
    for limit, expected in ((share - 0.01, rule), (share, ""), (share + 0.01, "")):
        settings = with_constants(
            QualitySettings,
            **loose
            | {"gopher_min_words": 0, "gopher_min_word_length": 0, "gopher_min_alphabetic_words": 0}
            | {"gopher_min_stop_words": 0, name: limit},
        )
        assert gopher_rule("\n".join(lines), split_words("\n".join(lines)), settings) == expected


def test_stop_words_of_another_language():
    german = {"gopher": True, "gopher_min_words": 1, "gopher_stop_words": ("der", "die", "und")}
    assert judge(["Der Hund und die Katze schlafen"], **german)[1] == ""
    assert judge(["Der Hund, der schläft"], **german)[1] == "gopher_stop_words"  # one, twice; capitals differ


def c4(*lines, **settings):
    return judge(list(lines), c4=True, **({"c4_min_sentences": 0} | settings))


def test_lines_that_c4_removes():
    long = "a " + "x" * 10
    policy = "read our Privacy Policy here."
    lines = [f"{long}.", "no end here", "an end...", "Two words.", 'He said "no"', "Turn on JavaScript now!", policy]
    kept, rule, found = c4(*lines, c4_max_word_length=10)
    assert (kept, rule) == (['He said "no"'], "")
    assert found == {
        "c4_line_long_word": 1,
        "c4_line_punctuation": 2,
        "c4_line_few_words": 1,
        "c4_line_javascript": 1,
        "c4_line_policy": 1,
    }
    assert set(found) <= set(RULES)
    # At the limits the lines stay.
    assert c4(f"{long}.", "Two words.", c4_max_word_length=11, c4_min_line_words=2)[0] == [f"{long}.", "Two words."]


def test_c4_removes_citations():
    kept, _, found = c4("[1] It is so[2], they say[citation needed].", "See a[b] and c[d].")
    assert kept == ["It is so, they say.", "See a[b] and c[d]."] and found == {"c4_citations": 3}
    # As in datatrove, the blank before a mark that ends a line leaves no full stop at its end.
    assert c4("It is so. [1]", "It is so.")[0] == ["It is so."]


def test_documents_that_c4_drops():
    assert c4("Lorem ipsum was here.")[1] == "c4_lorem_ipsum"
    assert c4("The set {x} is small.")[1] == "c4_curly_bracket"
    assert c4("nothing ends")[1] == "c4_few_sentences"  # no line remains
    # The rules see only lines that end in a full stop or the like.
    assert c4("lorem ipsum {", "This line does.")[1] == ""
    assert c4("One is. Two are. Three are!", "Four, and five.", c4_min_sentences=4)[1] == ""
    assert c4("One is. Two are. Three are!", "Four, and five.", c4_min_sentences=5)[1] == "c4_few_sentences"


@pytest.mark.parametrize(
    "rule, line",
    [
        ("citations", "It is[1] so."),
        ("punctuation", "It is so"),
        ("lorem_ipsum", "It is Lorem Ipsum."),
        ("javascript", "It is JavaScript."),
        ("curly_bracket", "It is {}."),
        ("policy", "It uses cookies."),
    ],
)
def test_each_rule_of_c4_can_be_left_out(rule, line):
    others = tuple(name for name in C4_RULES if name != rule)
    assert c4(line, c4_rules=others)[:2] == ([line], "")
    assert c4(line, c4_rules=(rule,))[:2] != ([line], "")


def test_sentences():
    assert count_sentences("One. Two! (Three?) four") == 4
    assert count_sentences("Mr. Hale, e.g. at 5 p.m., paid $3.50...") == 1
    assert count_sentences('He said "Go."') == 1  # a mark alone begins no sentence
    assert count_sentences('He said "Go." Then "." and so on') == 3
    # More white space than a blank is a word: a line of dots, as in novels.
    assert [count_sentences(line) for line in (". . . .", ".   .   .   .", ".\t.", "Hi!  ? ok.", "One.  Two.")] == [
        *(1, 4, 2, 3, 2)
    ]


@pytest.mark.parametrize(
    "lines, name, share, rule",
    [
        (["a.", "b", "c", "d？"], "fineweb_min_punctuated_lines", 2 / 4, "fineweb_unpunctuated_lines"),
        (["abcd.", "abcde.", "abcdef."], "fineweb_max_short_lines", 2 / 3, "fineweb_short_lines"),
        (["abc.", "abc.", "de"], "fineweb_max_repeated_characters", 4 / 10, "fineweb_repeated_lines"),
        (["a b c", "d e"], "fineweb_max_lines_per_word", 1 / 5, "fineweb_many_lines"),
    ],
)
def test_finewebs_rules(lines, name, share, rule):
    loose = {f"fineweb_max_{other}": 1 for other in ("short_lines", "repeated_characters", "lines_per_word")}
    loose |= {"fineweb_min_punctuated_lines": 0, "fineweb_short_line": 6, "fineweb": True}
    least = "min" in name
    for limit, expected in ((share - 0.01, "" if least else rule), (share, ""), (share + 0.01, rule if least else "")):
        assert judge(lines, **loose | {name: limit})[1] == expected


def test_families_run_in_the_order_of_finewebs_pipeline():
    every = dict.fromkeys(SWITCHES, True)
    bad = ["Menu {", "Menu {"]
    assert judge(bad, **every)[1] == "gopher_repeated_lines"
    assert judge(bad, **every | {"gopher_repetition": False})[1] == "gopher_few_words"
    assert judge(bad, **every | {"gopher_repetition": False, "gopher": False})[1] == "c4_few_sentences"
    assert judge(bad, fineweb=True)[1] == "fineweb_unpunctuated_lines"


def test_fineweb_judges_what_c4_leaves():
    text = ["It is a line that ends, and it has more than thirty characters.", *(["menu"] * 9)]
    assert judge(text, fineweb=True)[1] == "fineweb_unpunctuated_lines"
    assert judge(text, fineweb=True, c4=True, c4_min_sentences=1)[:2] == (text[:1], "")


def test_words_of_lines_that_c4_removes_do_not_count_for_fineweb():
    """Gopher has split all 16 words; of the two lines that stay, with 8 words, one line end is more than a tenth."""
    lines = ["Owls see far.", "Mice ran off.", "menu one two three four five six seven"]
    loose = {"c4_min_sentences": 0, "fineweb_short_line": 1, "fineweb_max_lines_per_word": 0.1}
    loose |= {"gopher_min_words": 1, "gopher_min_word_length": 1, "gopher_min_stop_words": 0}
    assert judge(lines, gopher=True, c4=True, fineweb=True, **loose)[:2] == (lines[:2], "fineweb_many_lines")


def test_every_rule_names_its_threshold():
    names = {name for text in RULES.values() for name in re.findall(r"corpus\.quality\.(\w+)", text)}
    assert names <= set(QualitySettings.__dataclass_fields__)


def test_refused_languages():
    with pytest.raises(ValueError, match=r"corpus\.language is zh: leave corpus\.quality off"):
        CorpusSettings(language="zh", quality=QualitySettings(fineweb=True))
    german = "gopher_stop_words are English, and corpus.language is de: --set corpus.quality.gopher_stop_words="
    with pytest.raises(ValueError, match=german):
        CorpusSettings(language="de", quality=QualitySettings(gopher=True))
    CorpusSettings(language="de", quality=QualitySettings(gopher=True, gopher_min_stop_words=0))
    CorpusSettings(language="de", quality=QualitySettings(gopher=True, gopher_stop_words=("der", "und")))
    CorpusSettings(language="zh")


@pytest.mark.parametrize(
    "text, words",
    [
        ('"Don\'t!" (he said)', '" Do n\'t ! " ( he said )'),
        ("Don’t they’ll can't've", "Do n’t they ’ll ca n't 've"),
        ("cannot gonna its lets let's were Im", "can not gon na its lets let 's were I m"),
        ("Mr. Hale, i.e. the U.S. and N.Y. vs. etc.", "Mr. Hale , i.e. the U.S. and N.Y. vs. etc ."),
        ("(Mr.) id. wed.", "( Mr. ) i d. we d."),  # what begins like "I'd" ends in an initial
        ("at 9am, 10p.m. or 13pm", "at 9 am , 10 p.m. or 13pm"),
        ("3km 20% $5 5€ +1 + 4+ US$3", "3 km 20 % $ 5 5 € +1 + 4 + US$ 3"),
        ("wait...what… well..... no....yes", "wait ... what … well ..... no .... yes"),
        ("well-known end--of a—b 1-2 x-1 2^3", "well - known end -- of a — b 1 - 2 x-1 2 ^ 3"),
        ("end.Start 3.14 a.b x,y 1,000", "end . Start 3.14 a.b x , y 1,000"),
        ("http://example.org/a?b=c, me@example.org.", "http://example.org/a?b=c , me@example.org ."),
        ("見：http://a.org/b", "見：http://a.org / b"),
        ("f(x): x[1:] :-) 8)", "f(x ): x[1 :] :-) 8)"),
        ("他說：『好。』", "他說：『好 。 』"),
        ("…… ——", "… … — —"),
        ("x……", "x ……"),
        ("so....................", "so ...................."),
        ("好。—她 ㄓ", "好。 — 她 ㄓ"),
        ("_it_ **bold** `code`", "_ it _ * * bold * * ` code `"),
        ("", ""),
    ],
)
def test_words(text, words):
    assert split_words(text) == words.split()


def test_a_very_long_stretch_is_one_word():
    assert len(split_stretch("(" * MAX_STRETCH)) == MAX_STRETCH
    assert split_stretch("(" * (MAX_STRETCH + 1)) == ("(" * (MAX_STRETCH + 1),)


def test_a_word_has_the_same_characters_as_its_stretch():
    text = "..a.b.. (x)): 'tis ''q'' “I’d’ve” 1.2.3.4 °C. 7km/h. a/b/c--d...e §4 «x» ಠ_ಠ"
    assert "".join(split_words(text)) == "".join(text.split())
