"""Pages of servers in Debian's Chromium."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from serving.server import Server
from tests.support.serving.browsing import PAGE_SECONDS

expect.set_options(timeout=PAGE_SECONDS * 1000)


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Page:
    """The tab of a module's tests: a new one takes longer than most of them."""
    tab = browser.new_page()
    tab.set_default_timeout(PAGE_SECONDS * 1000)
    return tab


@pytest.fixture
def open_page(tab: Page) -> Iterator[Callable[..., Page]]:
    """`open_page(server, width=360)` opens the page; at the end it must have no errors and no policy violations.

    With `answers`, of the pattern of an address, the server itself gets no such request.
    """
    complaints: list[str] = []

    def complain(error: Any) -> None:
        complaints.append(str(error))

    def hear(message: Any) -> None:
        if "Policy" in message.text:
            complain(message.text)

    def open_page(server: Server, width: int = 1200, scheme: Any = "light", answers: Any = None) -> Page:
        for pattern, answer in (answers or {}).items():
            tab.route(pattern, partial(Route.fulfill, json=answer))
        tab.set_viewport_size({"width": width, "height": 900})
        tab.emulate_media(color_scheme=scheme)
        tab.goto(f"http://127.0.0.1:{server.rest_port}/")
        return tab

    tab.on("pageerror", complain)
    tab.on("console", hear)
    yield open_page
    tab.goto("about:blank")
    tab.unroute_all()
    tab.remove_listener("pageerror", complain)
    tab.remove_listener("console", hear)
    assert complaints == []
