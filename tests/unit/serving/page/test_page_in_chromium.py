"""The page at `/` in Debian's Chromium, headless, operated by keyboard only."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, Route, expect

from serving.middleware.settings import SecuritySettings
from serving.server import Server
from tests.support.serving.browsing import ATTACK, FOCUSED, LOW_CONTRAST, PAGE_SECONDS, pick, tab_to, type_into
from tests.support.serving.running import wait_for

TOKEN = "correct-horse-battery-staple"
REFRESH_MS = 2000  # of page.js
CONFIG = """
model_config_list {{
  config {{
    name: "bert" base_path: "{0}/bert" model_platform: "tensorflow"
    model_version_policy {{ specific {{ versions: 1 versions: 2 versions: 3 }} }}
    version_labels {{ key: "stable" value: 1 }}
    version_labels {{ key: "canary" value: 2 }}
  }}
  config {{ name: "empty" base_path: "{0}/empty" model_platform: "tensorflow" }}
}}
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, push: Callable[[Path, int, int], Path]) -> Iterator[Server]:
    """Versions 1 (stable) and 2 (canary) of the toy, a version 3 that does not load, and a model without any."""
    folder = tmp_path_factory.mktemp("page")
    for version in (1, 2):
        (folder / "bert").mkdir(exist_ok=True)
        push(folder / "bert", version, version)
    (folder / "bert" / "3").mkdir()
    (folder / "bert" / "3" / "saved_model.pb").write_bytes(b"no model")
    (folder / "models.config").write_text(CONFIG.format(folder))
    with Server(model_config_file=folder / "models.config", grpc_port=0, rest_port=0) as server:
        wait_for(lambda: server.models.stores["bert"].has_looked, 240)
        yield server


@pytest.fixture
def page(served: Server, open_page: Callable[..., Page]) -> Page:
    page = open_page(served)
    expect(page.locator("#signature")).to_have_value("serving_default")
    return page


def filled(page: Page) -> Locator:
    return page.get_by_role("region", name="Filled masks").locator("article")


def outputs(page: Page) -> Locator:
    return page.get_by_role("region", name="Outputs").locator("article")


def test_models_and_versions_are_listed(page: Page) -> None:
    rows = page.locator("#models tbody tr")
    expect(rows).to_have_count(6)
    assert page.locator("#token").is_hidden()  # this server requires none
    texts = [" ".join(row.split()) for row in rows.all_inner_texts()]
    assert texts[:3] == ["bert", "1 AVAILABLE stable", "2 AVAILABLE canary"]
    assert texts[3].startswith("3 END ") and len(texts[3]) > 20  # with the reason
    assert texts[4:] == ["empty", "no version yet"]
    options = [option.rpartition(" version ")[2] for option in page.locator("#target option").all_inner_texts()]
    assert "3" not in options and {"1", "2"} <= set(options)


def test_masks_are_filled_and_versions_compared_by_keyboard(page: Page) -> None:
    pick(page, "Ask", "bert, label stable (version 1)")
    pick(page, "Compare with", "bert, version 2")
    type_into(page, "Texts", "One [MASK] and [MASK].\nAnother ")
    tab_to(page, "Insert [MASK]")
    page.keyboard.press("Enter")
    assert page.evaluate(FOCUSED) == "Texts"
    page.keyboard.press("Control+Enter")
    expect(page.locator("#fill-status")).to_have_text("Both answers are the same.")
    for column, (target, version) in enumerate([("label stable (version 1)", 1), ("version 2", 2)]):
        answer = filled(page).nth(column)
        expect(answer.get_by_role("heading")).to_have_text(f"bert, {target}")
        expect(answer.locator(".facts")).to_contain_text(f"Version {version} answered in ")
        expect(answer.locator(".text")).to_have_text(["One 0a and 1a.", "Another 0a"])
        expect(answer.locator("caption")).to_have_text(["Mask 1", "Mask 2", "Mask 1"])
        expect(answer.locator("tbody").first.locator("tr")).to_have_text(["0a20.0 %", "0b10.0 %"])


def test_different_answers_are_highlighted(page: Page) -> None:
    def answer(route: Route) -> None:
        second = "rome" if "/versions/1:" in route.request.url else "lyon"
        route.fulfill(json={"outputs": {"tokens": [[["paris", second]]], "scores": [[[0.9, 0.05]]]}})

    page.route("**/versions/*:predict", answer)
    pick(page, "Ask", "bert, version 1")
    pick(page, "Compare with", "bert, version 2")
    tab_to(page, "Fill masks")
    page.keyboard.press("Enter")
    expect(page.locator("#fill-status")).to_have_text("The answers differ.")
    expect(page.locator(".differs")).to_have_text(["rome", "lyon"])


def test_any_signature_is_called_by_keyboard(page: Page) -> None:
    pick(page, "Compare with", "bert, label stable (version 1)")
    pick(page, "Signature", "company")
    type_into(page, "text", "one\nthree\n")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#call-status")).to_have_text("The answers differ.")
    for column, number in ((0, 2), (1, 1)):
        answer = outputs(page).nth(column)
        expect(answer.locator("h4")).to_have_text(["longest [2]", "number [2]", "rows [2]"])
        expect(answer.get_by_label("Values of number")).to_have_text(f"{number}\n{number}")
    pick(page, "Compare with", "nothing")
    pick(page, "Signature", "numbers")
    expect(page.locator("#input-0-hint")).to_contain_text("DT_FLOAT [?, 2]")
    type_into(page, "real", "1 2.5\n[NaN, -4]")
    type_into(page, "whole", "7\n8")
    tab_to(page, "Call signature")
    page.keyboard.press("Enter")
    expect(outputs(page)).to_have_count(1)
    expect(outputs(page).get_by_label("Values of real")).to_have_text("[0.1, 0.25]\n[NaN, -0.4]")
    expect(outputs(page).get_by_label("Values of all")).to_have_text("NaN")
    expect(outputs(page).get_by_label("Values of whole")).to_have_text("8\n9")


def test_bytes_are_sent_as_base64(page: Page) -> None:
    pick(page, "Signature", "echo")
    type_into(page, "text", "/wA=")
    tab_to(page, "text is base64 (bytes, not text)")
    page.keyboard.press("Space")
    tab_to(page, "Call signature")
    page.keyboard.press("Enter")
    expect(outputs(page).get_by_label("Values of as_bytes")).to_have_text('{"b64":"/wA="}')


def test_the_servers_error_message_is_shown(page: Page) -> None:
    type_into(page, "Texts", f"{ATTACK} no mask")
    page.keyboard.press("Control+Enter")
    expect(filled(page).locator(".error")).to_contain_text("400: ")
    expect(filled(page).locator(".error")).to_contain_text("no [MASK] in text 0")
    pick(page, "Signature", "numbers")
    type_into(page, "whole", "seven")
    page.keyboard.press("Control+Enter")
    expect(outputs(page).locator(".error")).to_contain_text("JSON Value: 'seven' is not of expected type: DT_INT32")


def test_html_in_answers_stays_text(page: Page) -> None:
    type_into(page, "Texts", f"{ATTACK} [MASK]")
    page.keyboard.press("Control+Enter")
    expect(filled(page).locator(".text")).to_have_text(f"{ATTACK} 0a")
    pick(page, "Signature", "echo")
    type_into(page, "text", ATTACK)
    page.keyboard.press("Control+Enter")
    expect(outputs(page).get_by_label("Values of text")).to_have_text(json.dumps(ATTACK))
    assert page.evaluate("() => window.ran") is None
    assert page.locator("main script, main img").count() == 0
    with pytest.raises(Exception, match="TrustedHTML"):  # enforced by the browser's policy
        page.evaluate("(text) => { document.body.innerHTML = text }", ATTACK)


def test_integers_of_64_bits_and_calls_on_examples(page: Page) -> None:
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    whole = {"dtype": "DT_INT64", "tensor_shape": shape, "name": ""}
    method = "tensorflow/serving/classify"
    signatures = {
        "serving_default": {"inputs": {"id": whole}, "outputs": {"id": whole}, "method_name": ""},
        "sort": {"inputs": {"inputs": whole}, "outputs": {}, "method_name": method},
    }
    sent: list[Request] = []

    def answer(route: Route) -> None:
        sent.append(route.request)
        route.fulfill(body='{"outputs": [9007199254740993], "results": [[["<b>", 0.5]]]}')

    metadata = {"metadata": {"signature_def": {"signature_def": signatures}}}
    page.route("**/metadata", lambda route: route.fulfill(json=metadata))
    page.route("**/bert:*", answer)
    tab_to(page, "Load models")
    page.keyboard.press("Enter")
    expect(page.get_by_label("id", exact=True)).to_be_visible()
    type_into(page, "id", "9007199254740993")
    page.keyboard.press("Control+Enter")
    expect(outputs(page).get_by_label("Values of id")).to_have_text("9007199254740993")
    pick(page, "Signature", "sort")
    type_into(page, "examples", '{"text": "a"}\n{"text": "b"}')
    page.keyboard.press("Control+Enter")
    expect(outputs(page).locator("tbody tr")).to_have_text(["<b>50.0 %"])
    assert [request.url.rpartition(":")[2] for request in sent] == ["predict", "classify"]
    assert "9007199254740993" in (sent[0].post_data or "")
    assert json.loads(sent[1].post_data or "") == {"signature_name": "sort", "examples": [{"text": "a"}, {"text": "b"}]}


def test_the_token_is_asked_for_and_kept_in_memory_only(open_page: Callable[..., Page], tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    security = SecuritySettings(token_file=str(tmp_path / "tokens"))
    with Server(tmp_path / "none", grpc_port=0, rest_port=0, security=security) as server:
        page = open_page(server)
        status = page.locator("#models-status")
        expect(status).to_contain_text("401: no valid bearer token")
        expect(page.locator("#token")).to_be_focused()
        expect(page.get_by_text("This server answers only with a token")).to_be_visible()
        page.keyboard.type("not the token at all")
        page.keyboard.press("Enter")
        expect(status).to_contain_text("401: no valid bearer token")
        page.keyboard.press("Control+A")
        page.keyboard.type(TOKEN)
        page.keyboard.press("Enter")
        expect(status).to_have_text("1 model.")
        expect(page.locator("#models tbody tr")).to_have_text(["bert", "no version yet"])
        assert TOKEN not in page.url and page.context.storage_state(indexed_db=True) == {"cookies": [], "origins": []}
        assert page.evaluate("() => sessionStorage.length") == 0
        page.reload()
        expect(status).to_contain_text("401")
        expect(page.locator("#token")).to_have_value("")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (360, "dark")])
def test_layout_and_contrast(
    served: Server, open_page: Callable[..., Page], tmp_path: Path, width: int, scheme: str
) -> None:
    """WCAG 2.2: 1.4.3 (contrast 4.5), 1.4.10 (no sideways scrolling), 3.3.2 (labels); a screenshot is in tmp_path."""
    page = open_page(served, width, scheme)
    expect(page.locator("#signature")).to_have_value("serving_default")
    pick(page, "Compare with", "bert, label stable (version 1)")
    type_into(page, "Texts", f"A [MASK] with [MASK].\n{'long' * 30} [MASK]")
    page.keyboard.press("Control+Enter")
    pick(page, "Signature", "encode")
    type_into(page, "text", "A text.\n" + "x" * 200)
    page.keyboard.press("Control+Enter")
    expect(outputs(page)).to_have_count(2)
    type_into(page, "text_pair", "a\nb\nc")
    page.keyboard.press("Control+Enter")
    expect(outputs(page).locator(".error")).to_have_count(2)
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.keyboard.press("Control+Enter")
    expect(outputs(page).locator("h4")).to_have_count(4)
    page.screenshot(path=tmp_path / f"{width}-{scheme}.png", full_page=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= width
    assert page.evaluate(LOW_CONTRAST) == []
    unlabelled = "() => [...document.querySelectorAll('input, select, textarea')].filter((one) => !one.labels.length)"
    assert page.evaluate(unlabelled) == []


@pytest.fixture
def timed(browser: Browser) -> Iterator[Page]:
    """A page whose time goes on only when a test says so."""
    page = browser.new_page()
    page.set_default_timeout(PAGE_SECONDS * 1000)
    page.clock.install()
    yield page
    page.close()


def test_a_model_that_loads_appears_and_a_classifier_fills_no_masks(server: Server, timed: Page) -> None:
    states = iter(["LOADING"])
    found = {"signature_def": {name: {"inputs": {}, "outputs": {}} for name in ("a", "__saved_model_init_op")}}
    version = '{{"version": "1", "state": "{}", "status": {{}}}}'.format
    model = '{{"models": [{{"name": "b", "labels": {{}}, "model_version_status": [{}]}}]}}'.format
    timed.route("**/metadata", lambda route: route.fulfill(json={"metadata": {"signature_def": found}}))
    timed.route("**/v1/models", lambda route: route.fulfill(body=model(version(next(states, "AVAILABLE")))))
    timed.goto(f"http://127.0.0.1:{server.rest_port}/")
    expect(timed.get_by_text("LOADING")).to_be_visible()
    timed.clock.run_for(REFRESH_MS)
    expect(timed.locator("#signature")).to_have_text("a")
    expect(timed.get_by_text("AVAILABLE")).to_be_visible()
    assert timed.locator("#fill-part").is_hidden()


def test_polling_does_not_reset_the_form(served: Server, timed: Page) -> None:
    timed.goto(f"http://127.0.0.1:{served.rest_port}/")
    area = timed.locator("#inputs textarea").first
    area.focus()
    area.evaluate("(area) => { area.first = true; }")
    asked: list[str] = []
    timed.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    for _ in range(3):  # the model "empty" has no version, so the page asks again
        with timed.expect_event("response"):
            timed.clock.run_for(REFRESH_MS)
    assert timed.evaluate("() => document.activeElement.first === true")
    assert asked == ["models"] * 3  # no signatures, with which the form would be made anew
