"""Pages of servers in Debian's Chromium."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from serving.server import Server
from tests.support.serving.browsing import PAGE_SECONDS


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """`open_page(server, width=360)` opens the page; at the end it must have no errors and no policy violations."""
    complaints: list[str] = []
    pages = []

    def open_page(server: Server, width: int = 1200, scheme: Any = "light") -> Page:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(PAGE_SECONDS * 1000)
        pages.append(page)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text) if "Policy" in message.text else None)
        page.goto(f"http://127.0.0.1:{server.rest_port}/")
        return page

    expect.set_options(timeout=PAGE_SECONDS * 1000)
    yield open_page
    for page in pages:
        page.close()
    assert complaints == []
