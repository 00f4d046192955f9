"""Expected words: spaCy 3.8's blank English pipeline, which datatrove 0.10 splits English with."""

import pytest

from components.corpus_gen.filters.english_words import MAX_STRETCH, split_stretch, split_words


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


def test_a_word_of_letters_is_one_word():
    assert split_stretch("harbour") == ("harbour",)


def test_a_very_long_stretch_is_one_word():
    assert len(split_stretch("(" * MAX_STRETCH)) == MAX_STRETCH
    assert split_stretch("(" * (MAX_STRETCH + 1)) == ("(" * (MAX_STRETCH + 1),)


def test_a_word_has_the_same_characters_as_its_stretch():
    text = "..a.b.. (x)): 'tis ''q'' “I’d’ve” 1.2.3.4 °C. 7km/h. a/b/c--d...e §4 «x» ಠ_ಠ"
    assert "".join(split_words(text)) == "".join(text.split())
