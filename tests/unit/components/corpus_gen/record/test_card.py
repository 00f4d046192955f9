import pytest

from components.corpus_gen.record.card import corpus_card
from components.corpus_gen.settings import CleaningSettings, CorpusSettings, PersonalDataSettings


def fate(documents, size, words):
    return {"documents": documents, "bytes": size, "words": words}


COUNTS = {
    "eval": {"documents": 300},
    "record": {
        "all": {"kept": fate(6000, 90_000, 9000), "too_short": fate(1000, 5, 2), "near_duplicates": fate(2000, 70, 7)},
        "sources": {
            "wi|ki": {
                "kept": fate(6000, 90_000, 9000),
                "too_short": fate(10, 0, 0),
                "near_duplicates": fate(1990, 70, 7),
            }
        },
        "languages": {},
        "found": {"wi|ki": {"leak_passages": 5, "personal_email": 1234}},
    },
    "found": {"personal_email": 1234, "leak_passages": 5, "leak_in sst2": 3},
    "licences": [{"source": "wi|ki", "file": "LICENSE", "sha256": "ab12"}],
    "decontaminated": [{"name": "sst2", "texts": 872, "not_searched": 40, "unread": 7}],
}
SETTINGS = CorpusSettings(
    licence="CC BY-SA 4.0",
    cleaning=CleaningSettings(min_characters=50, near_duplicates=True),
    personal_data=PersonalDataSettings(email=True),
)


def test_the_card_has_licence_counts_rules_sources_personal_data_and_settings():
    card = corpus_card(COUNTS, SETTINGS)
    lines = card.splitlines()
    assert lines[0] == "# Corpus card" and "Licence: CC BY-SA 4.0" in lines
    assert "| wi\\|ki | LICENSE | ab12 |" in lines
    assert "| read | 9,000 | 90,075 | 9,009 |" in lines and "| kept | 6,000 | 90,000 | 9,000 |" in lines
    assert "300 of the 6,000 documents are held out." in lines
    assert "Near duplicates: 25.00% of the documents." in lines  # 2,000 of the 8,000 that were compared
    assert "| too_short | fewer characters than corpus.cleaning.min_characters |" in lines
    # What was read of the source, what is kept, and the rules that dropped the rest; the bar does not end the cell.
    assert (
        "| wi\\|ki | 8,000 | 90,070 | 9,007 | 6,000 | 90,000 | 9,000 | 1,990 near_duplicates, 10 too_short |" in lines
    )
    assert "| wi\\|ki | 1,234 personal_email, 5 leak_passages |" in lines
    assert any(line.startswith("| personal_email |") and line.endswith("| 1,234 |") for line in lines)
    assert any(line.startswith("| leak_passages |") and line.endswith("| 5 |") for line in lines)
    assert "| sst2 | 872 | 40 | 7 | 3 |" in lines and not any(line.startswith("| leak_in") for line in lines)
    assert "| corpus.cleaning.min_characters | 50 |" in lines and "| corpus.personal_data.email | True |" in lines
    assert "corpus.cleaning.min_language_fraction" not in card  # a default
    assert "Not counted (`corpus.count_languages`)." in lines


def test_a_card_says_what_was_not_looked_for():
    record = {"all": {"kept": fate(1, 2, 3)}, "sources": {}, "languages": {"en": {"kept": fate(1, 2, 3)}}}
    lines = corpus_card({"eval": {"documents": 0}, "record": record}, CorpusSettings()).splitlines()
    for expected in (
        "Licence: not given (`corpus.licence`)",
        "Near duplicates: not looked for.",
        "Not looked for (`corpus.decontaminate`).",
        "The defaults.",
        "| en | 1 | 2 | 3 | 1 | 2 | 3 |  |",
    ):
        assert expected in lines
    assert "licence file" not in "\n".join(lines)


@pytest.mark.parametrize(
    ("switches", "searched"),
    [({}, ""), ({"phone_regions": "US"}, ""), ({"ip": True}, "ip"), ({"phone": True}, "phone")],
)
def test_the_card_tells_no_personal_data_from_none_searched(switches, searched):
    record = {"all": {"kept": fate(1, 2, 3)}, "sources": {}, "languages": {}}
    settings = CorpusSettings(personal_data=PersonalDataSettings(**switches))
    card = corpus_card({"eval": {"documents": 0}, "record": record}, settings)
    cells = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| personal_")]
    assert {rule.removeprefix("personal_"): count for rule, _, count in cells} == {
        **dict.fromkeys(("email", "ip", "card", "phone"), "not searched"),
        **({searched: "0"} if searched else {}),
    }
