"""Scores, tags, answers and masks on the page, in Debian's Chromium."""

import pytest
from playwright.sync_api import Browser, expect

from serving.server import Server

PAGE_SECONDS = 60  # on a machine with other work
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
def test_scores_are_shown_beside_their_labels(server: Server, browser: Browser, kind: str) -> None:
    page = browser.new_page()
    page.set_default_timeout(1000 * PAGE_SECONDS)
    expect.set_options(timeout=1000 * PAGE_SECONDS)
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    text = {"dtype": "DT_STRING", "tensor_shape": shape, "name": ""}
    names = ["question", "context"] if kind == "span" else ["text"]
    found = {"inputs": dict.fromkeys(names, text), "outputs": dict.fromkeys(OUTPUTS[kind], text), "method_name": ""}
    metadata = {"metadata": {"signature_def": {"signature_def": {"serving_default": found}}}}
    page.route("**/metadata", lambda route: route.fulfill(json=metadata))
    page.route("**:predict", lambda route: route.fulfill(json={"outputs": OUTPUTS[kind]}))
    page.goto(f"http://127.0.0.1:{server.rest_port}/")
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
    page.close()


def test_the_mask_is_that_of_the_chosen_model(server: Server, browser: Browser) -> None:
    """`<mask>` for a byte-level BPE, in the button, in the hint and in the texts."""
    page = browser.new_page()
    page.set_default_timeout(1000 * PAGE_SECONDS)
    expect.set_options(timeout=1000 * PAGE_SECONDS)
    status = [{"version": str(version), "state": "AVAILABLE", "status": {}} for version in (1, 2)]
    status[1]["mask"] = "<mask>"
    listed = {"models": [{"name": "bert", "labels": {"stable": "1"}, "model_version_status": status}]}
    page.route("**/v1/models", lambda route: route.fulfill(json=listed))
    page.goto(f"http://127.0.0.1:{server.rest_port}/")
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
    answer = {"outputs": {"tokens": [[["paris", "rome"]]], "scores": [[[0.9, 0.05]]]}}
    page.route("**/versions/*:predict", lambda route: route.fulfill(json=answer))
    page.get_by_role("button", name="Fill masks").click()
    expect(page.get_by_role("region", name="Filled masks").locator(".text")).to_have_text("One paris")
    page.close()
