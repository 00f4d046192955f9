import json

import pytest

from pipeline.report.figures.corpus_funnel import EXAMPLE_CHARACTERS, EXAMPLES, funnel, shown
from tests.support.pipeline.fabricated_run import Fabricated
from tests.support.pipeline.report_reading import check_stands_alone, words

SPLIT = {"documents": 3, "bytes": 30_000, "duplicates": 0, "segments": 9}
CORPUS = {
    "train": SPLIT,
    "eval": SPLIT,
    "record": {
        "all": {
            "duplicates": {"documents": 2, "bytes": 20_000, "words": 2},
            "kept": {"documents": 6, "bytes": 60_000, "words": 6},
            "too_short": {"documents": 4, "bytes": 10_000, "words": 4},
        }
    },
}


def dropped(folder, documents):
    (folder / "dropped").mkdir(parents=True)
    lines = [json.dumps({"rule": rule, "source": "a.txt", "text": text}) + "\n" for rule, text in documents]
    (folder / "dropped" / "000000.jsonl").write_text("".join(lines))


def test_the_funnel_has_what_each_rule_left(tmp_path):
    rows = funnel(CORPUS, str(tmp_path))
    assert [(row.name, row.dropped, row.documents, row.size) for row in rows] == [
        ("read", 0, 12, 90_000),
        ("too_short", 4, 8, 80_000),
        ("duplicates", 2, 6, 60_000),
    ]
    assert [row.share for row in rows] == [1, 8 / 12, 6 / 12]


def test_a_corpus_of_an_earlier_version_has_no_funnel(tmp_path):
    assert funnel({"train": SPLIT, "eval": SPLIT}, str(tmp_path)) == []


def test_a_few_examples_of_each_rule(tmp_path):
    dropped(tmp_path, [*(("too_short", f"{i}") for i in range(9)), ("duplicates", "again\nand again")])
    examples = {row.name: row.examples for row in funnel(CORPUS, str(tmp_path))}
    assert examples == {"read": [], "too_short": [str(i) for i in range(EXAMPLES)], "duplicates": ["again and again"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("to jane.doe@mail.org or x@example.net", "to [email] or [address]"),
        ("jane at@strange", "jane [address]"),
        ("call (030) 123-45 67 or +49 30 1234567", "call ([number] or [number]"),
        ("card 4111 1111 1111 1111.", "card [card]."),
        ("in 1998, 12 of 34", "in 1998, 12 of 34"),
    ],
)
def test_examples_have_no_personal_data(text, expected):
    assert shown(text) == expected


def test_examples_are_shortened_after_personal_data_is_replaced():
    text = "word " * 46 + "jane.doe@mail.org " * 9
    assert len(text) > EXAMPLE_CHARACTERS
    assert "@" not in shown(text) and "jane" not in shown(text) and shown(text).endswith("…")
    assert len(shown(text)) <= EXAMPLE_CHARACTERS + 2


def test_the_page_shows_the_funnel_and_escapes_what_was_dropped(tmp_path, monkeypatch):
    fabricated = Fabricated(tmp_path / "run", monkeypatch)
    assert "Filters: what each rule dropped" not in words(fabricated.write())
    path = fabricated._file("documents", "corpus.json", json.dumps(CORPUS))
    dropped(type(tmp_path)(path).parent, [("too_short", "<script>alert(1)</script> of jane@mail.org")])
    html = fabricated.write()
    check_stands_alone(html)
    text = words(html)
    assert "too_short 4 8 0.08 MB" in text and "duplicates 2 6 0.06 MB" in text
    assert "<script" not in html and "&lt;script&gt;alert(1)" in html and "jane" not in html
