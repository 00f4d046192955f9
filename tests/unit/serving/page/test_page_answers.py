"""Scores, tags, spans, masks, similarities and ranks on the page, in Debian's Chromium."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from serving.server import Server
from tests.support.serving.browsing import ATTACK, LOW_CONTRAST, pick, type_into
from tests.support.serving.running import running

Opens = Callable[..., Page]
TEXTS = {"text": ["Good film.\n"], "question": ["Who?"], "context": ["Käthe ran."]}
OUTPUTS = {
    "labels": {"label": ["good"], "labels": [["bad", "good"]], "scores": [[0.025, 0.975]]},
    "tags": {
        "words": [["Good", "film", ""]],
        "tags": [["O", "B-X", ""]],
        "scores": [[1.0, 0.5, 0.0]],
        "ends": [[4, 9, 0]],
    },
    "choices": {"choice": [1], "scores": [[0.25, 0.75]]},
    "masks": {"tokens": [[["a", "b"], ["", ""]]], "scores": [[[0.5, 0.25], [0.0, 0.0]]]},
    "logits": {"labels": [["bad", "good"]], "scores": [["NaN", 4.5]]},
    "span": {"answer": ["Käthe"], "start": [0], "end": [5], "score": [7.5]},
    "uneven": {"labels": [["bad"]], "scores": [[0.5, 0.5]]},
}
SHOWN = {
    "labels": ["good97.5 %", "bad2.5 %"],
    "tags": ["GoodO100.0 %", "filmB-X50.0 %"],
    "choices": ["175.0 %", "025.0 %"],
    "masks": ["a50.0 %", "b25.0 %"],
    "logits": ["badNaN", "good4.500"],
    "span": [],
    "uneven": [],
}


@pytest.mark.parametrize("kind", SHOWN)
def test_scores_are_shown_beside_their_labels(server: Server, open_page: Opens, kind: str) -> None:
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    text = {"dtype": "DT_STRING", "tensor_shape": shape, "name": ""}
    names = ["question", "context"] if kind == "span" else ["text"]
    found = {"inputs": dict.fromkeys(names, text), "outputs": dict.fromkeys(OUTPUTS[kind], text), "method_name": ""}
    metadata = {"metadata": {"signature_def": {"signature_def": {"serving_default": found}}}}
    page = open_page(server, answers={"**/metadata": metadata, "**:predict": {"outputs": OUTPUTS[kind]}})
    for name in names:
        page.get_by_label(name, exact=True).fill(TEXTS[name][0])
    page.get_by_role("button", name="Call signature").click()
    expect(page.locator("#call-status")).to_have_text("Answered.")
    shown = page.get_by_role("region", name="Outputs").locator("article")
    expect(shown.locator("tbody tr")).to_have_text(SHOWN[kind])
    arrays = {"span": ["score [1]"], "uneven": ["labels [1, 1]", "scores [1, 2]"]}
    expect(shown.locator("h4")).to_have_text(arrays.get(kind, []))
    expect(shown.locator("mark")).to_have_text(["Käthe"] if kind == "span" else [])
    if kind in ("labels", "tags", "choices"):
        expect(shown.locator("caption")).to_have_text(["Good film."])


def test_the_mask_is_that_of_the_chosen_model(server: Server, open_page: Opens) -> None:
    """`<mask>` for a byte-level BPE, in the button, in the hint and in the texts."""
    status = [{"version": str(version), "state": "AVAILABLE", "status": {}} for version in (1, 2)]
    status[1]["mask"] = "<mask>"
    listed = {"models": [{"name": "bert", "labels": {"stable": "1"}, "model_version_status": status}]}
    answer = {"outputs": {"tokens": [[["paris", "rome"]]], "scores": [[[0.9, 0.05]]]}}
    page = open_page(server, answers={"**/v1/models": listed, "**/versions/*:predict": answer})
    insert, hint, texts = page.locator("#insert"), page.locator("#texts-hint"), page.locator("#texts")
    expect(insert).to_have_text("Insert <mask>")  # of the newest version
    expect(hint).to_contain_text("at least one <mask>.")
    expect(texts).to_have_value("The capital of France is <mask>.")
    page.locator("#target").select_option("bert, label stable (version 1)")
    expect(insert).to_have_text("Insert [MASK]")
    expect(hint).to_contain_text("at least one [MASK].")
    page.locator("#target").select_option("bert, version 2")
    texts.fill("One ")
    insert.click()
    expect(texts).to_have_value("One <mask>")
    page.get_by_role("button", name="Fill masks").click()
    expect(page.get_by_role("region", name="Filled masks").locator(".text")).to_have_text("One paris")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]) -> Iterator[Server]:
    """A server with the toy as `bert`, and a model of pairs as `cross`."""
    from tests.support.serving import toy

    folder = tmp_path_factory.mktemp("pairs")
    toy.save_pairs(folder / "cross" / "1")
    (folder / "bert").mkdir()
    push(folder / "bert", 1, 1)
    config = 'config {{ name: "{1}" base_path: "{0}/{1}" model_platform: "tensorflow" }}'.format
    (folder / "models").write_text(f"model_config_list {{ {config(folder, 'bert')} {config(folder, 'cross')} }}")
    with running(model_config_file=folder / "models") as server:
        yield server


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (360, "dark")])
def test_texts_are_compared_and_ranked_where_a_model_can(
    pairs: Server, open_page: Opens, tmp_path: Path, width: int, scheme: str
) -> None:
    page = open_page(pairs, width, scheme)
    expect(page.locator("#vectors-part")).to_be_visible()
    assert page.locator("#rerank-part").is_hidden()
    cosines = {"embedding": [[1, 0], [0.8, 0.6], [-2, 0], [0, 0]], "num_tokens": [1] * 4}
    page.route("**:predict", lambda route: route.fulfill(json={"outputs": cosines}), times=1)
    type_into(page, "Texts to compare", f"one\ntwo\n{ATTACK}\n" + "long" * 20)
    page.keyboard.press("Control+Enter")
    shown = page.get_by_role("region", name="Similarities")
    numbers = ["1 one1.000.80-1.000.00", "2 two0.801.00-0.800.00", f"3 {ATTACK}-1.00-0.801.000.00"]
    expect(shown.locator("tbody tr")).to_have_text([*numbers, f"4 {'long' * 20}0.000.000.000.00"])
    expect(shown.locator("td.heat-4")).to_have_count(5)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate(LOW_CONTRAST) == []
    page.unroute("**:predict")
    type_into(page, "Texts to compare", "abc\nabcde")  # the toy's vectors have one direction
    page.keyboard.press("Control+Enter")
    expect(shown.locator("tbody tr")).to_have_text(["1 abc1.001.00", "2 abcde1.001.00"])
    pick(page, "Ask", "cross, newest version")
    expect(page.locator("#rerank-part")).to_be_visible()
    assert page.locator("#vectors-part").is_hidden()
    type_into(page, "Query", "xy")
    type_into(page, "Texts to rank", f"ab\n{ATTACK}\nabcdef")
    page.keyboard.press("Control+Enter")
    ranked = page.get_by_role("region", name="Ranked texts")
    expect(ranked.locator("tbody tr")).to_have_text([f"{ATTACK}100.0 %", "abcdef73.1 %", "ab26.9 %"])
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate(LOW_CONTRAST) == [] and page.evaluate("() => window.ran") is None
