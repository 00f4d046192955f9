import json
import random

import pytest

from components.corpus_gen.filters.chain import RULES
from components.corpus_gen.languages import UNDETERMINED
from components.corpus_gen.record.card import corpus_card
from components.corpus_gen.record.tally import (
    FATES,
    KEPT,
    MAX_SOURCES,
    READ_BEFORE,
    DroppedFile,
    SourceNames,
    Tally,
    nested,
)
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


GERMAN = "Alle Menschen sind frei und an Würde und Rechten gleich geboren, sie sind mit Vernunft und Gewissen begabt."


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["a/wiki/0.txt", "a/wiki/1.txt", "a/news.jsonl"], ["wiki/0.txt", "wiki/1.txt", "news.jsonl"]),
        (["/data/text.txt"], ["text.txt"]),
        (["text.txt"], ["text.txt"]),
        (["gs://b/x/a.txt", "gs://b/x/b.txt"], ["a.txt", "b.txt"]),
        # 65 files: only folders have names; with one folder, it is the name.
        ([f"a/wiki/{i}" for i in range(65)], ["wiki"] * 65),
        ([f"{i}" for i in range(65)], ["."] * 65),
        ([*(f"a/wiki/{i}" for i in range(65)), "a/news"], ["wiki"] * 65 + ["news"]),
        ([f"a/{i}/{j}" for i in "xy" for j in range(40)], ["x"] * 40 + ["y"] * 40),
    ],
)
def test_sources_are_named_by_the_beginning_of_their_paths(paths, names):
    assert [SourceNames.of(paths)(path) for path in paths] == names
    assert [SourceNames.of(paths[::-1])(path) for path in paths] == names


def test_members_of_an_archive_have_its_name():
    names = SourceNames.of(["a/x.zip", "a/y.zip"])
    assert names("a/x.zip!deep/member.txt") == names("a/x.zip") == "x.zip"


def test_the_number_of_sources_is_bounded():
    rng = random.Random(0)
    for _ in range(50):
        paths = ["/".join(str(rng.randrange(5)) for _ in range(rng.randint(1, 6))) for _ in range(300)]
        names = SourceNames.of(paths)
        assert 1 <= len({names(path) for path in paths}) <= MAX_SOURCES


def tally(directory="", languages=False):
    dropped = DroppedFile(CorpusSettings(keep_dropped=bool(directory)), directory, "0", f"{directory}/dropped")
    return Tally(SourceNames.of(["t/a.txt", "t/b.txt"]), languages, dropped)


def test_documents_bytes_and_words_are_counted_by_fate_and_source():
    some = tally()
    assert some.add(KEPT, "t/a.txt", ["é b", "c"]) == 5
    some.add(KEPT, "t/b.txt", ["d"])
    some.add("too_short", "t/b.txt", ["e f"])
    some.add("empty", "t/b.txt", [])
    kept_a, kept_b = ({"documents": 1, "bytes": size, "words": words} for size, words in ((5, 3), (1, 1)))
    too_short, empty = {"documents": 1, "bytes": 3, "words": 2}, {"documents": 1, "bytes": 0, "words": 0}
    assert nested(some.close()) == {
        "all": {"kept": {"documents": 2, "bytes": 6, "words": 4}, "too_short": too_short, "empty": empty},
        "sources": {"a.txt": {"kept": kept_a}, "b.txt": {"kept": kept_b, "too_short": too_short, "empty": empty}},
        "languages": {},
    }


def test_what_was_found_is_counted_by_source():
    some = tally()
    some.add_found({"personal_email": 2, "leak_passages": 1}, "t/a.txt")
    some.add_found({"personal_email": 3}, "t/a.txt")
    some.add_found({"personal_email": 4}, "t/b.txt", "wiki")
    assert nested(some.close())["found"] == {
        "a.txt": {"personal_email": 5, "leak_passages": 1},
        "wiki": {"personal_email": 4},
    }
    assert "found" not in nested(tally().close())


def test_languages_are_counted_if_asked_for():
    some = tally(languages=True)
    some.add(KEPT, "t/a.txt", [GERMAN])
    some.add("too_short", "t/a.txt", ["R2-D2"])
    languages = nested(some.close())["languages"]
    assert {code: list(fates) for code, fates in languages.items()} == {"de": [KEPT], UNDETERMINED: ["too_short"]}
    assert languages["de"][KEPT]["bytes"] == len(GERMAN.encode())


def test_dropped_documents_are_written_in_their_order(tmp_path):
    some = tally(str(tmp_path))
    some.add("too_short", "t/a.txt", ["é", 'b "\u2028'])
    some.add(KEPT, "t/a.txt", ["kept"])
    some.add(READ_BEFORE, "t/a.txt", ["read before"])
    some.add("duplicates", "t/\udcff.txt", ["c"])
    assert not (tmp_path / "dropped/0.jsonl").exists()
    some.close()
    lines = (tmp_path / "dropped/0.jsonl").read_bytes().decode().split("\n")
    assert [json.loads(line) for line in lines if line] == [
        {"rule": "too_short", "source": "t/a.txt", "text": 'é\nb "\u2028'},
        {"rule": "duplicates", "source": "t/\udcff.txt", "text": "c"},
    ]
    assert "é" in lines[0]  # people read it


def test_without_a_dropped_document_there_is_no_file(tmp_path):
    some = tally(str(tmp_path))
    some.add(KEPT, "t/a.txt", ["kept"])
    some.close()
    assert not list(tmp_path.iterdir())


def test_no_rule_has_the_name_of_another_fate():
    assert not set(RULES) & set(FATES)
