"""The browser that the tests of the page look through, a page on a server, and a tab that shows it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page as Tab

from tests.web.pages import Site, chromium, opened, serving


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as served:
        yield served


@pytest.fixture
def tab(browser: Browser, site: Site) -> Iterator[Tab]:
    with opened(browser, site) as shown:
        yield shown
