"""Texts compared and ranked on the page, in Debian's Chromium."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.serving.browsing import ATTACK, LOW_CONTRAST, pick, type_into
from tests.support.serving.running import running


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (360, "dark")])
def test_texts_are_compared_and_ranked_where_a_model_can(
    tmp_path: Path, push: Callable[[Path, int, int], Path], open_page: Callable[..., Page], width: int, scheme: str
) -> None:
    from tests.support.serving import toy

    toy.save_pairs(tmp_path / "cross" / "1")
    (tmp_path / "bert").mkdir()
    push(tmp_path / "bert", 1, 1)
    config = 'config {{ name: "{1}" base_path: "{0}/{1}" model_platform: "tensorflow" }}'.format
    (tmp_path / "models").write_text(f"model_config_list {{ {config(tmp_path, 'bert')} {config(tmp_path, 'cross')} }}")
    with running(model_config_file=tmp_path / "models") as server:
        page = open_page(server, width, scheme)
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
