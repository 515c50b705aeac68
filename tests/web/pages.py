"""The page of `dragoman web` on a real server, with the simulator as the model, and a browser to look at it."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page as Tab, expect, sync_playwright

from dragoman import MemoryStore, Thinking, ToolCall, tool
from dragoman.chat import AsyncChatClient
from dragoman.engines import EngineOptions
from dragoman.simulator import Reply, Request, Simulator, Stall, Status
from dragoman.stores import AsyncStore
from dragoman.toolkit import PermissionChecker
from dragoman.tools import AnyTool
from dragoman.web import Access, Page, WebServer

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
]
expect.set_options(timeout=30_000)  # how long a page may take beside other tests
MODEL = "anthropic:claude-sonnet-4-5"
SLOW = " ".join(f"w{number}" for number in range(300))


def script(request: Request) -> Reply | Status:
    """What the model says: the last words of the user say which."""
    text = request.last_user_text
    if request.tool_results:
        return Reply(f"Then: {' and '.join(result.text for result in request.tool_results)}")
    match text.split():
        case ["pay", amount]:
            return Reply("I pay.", ToolCall(f"p{request.number}", "pay", f'{{"amount": {amount}}}'))
        case ["cities"]:
            calls = [ToolCall(f"c{each}", "weather", f'{{"city": "{each}"}}') for each in ("Lyon", "Oslo")]
            return Reply(Thinking("Both at once.", "any"), "I look.", *calls)
        case ["slowly"]:
            return Reply(SLOW, faults=[Stall(3.0, go_on=True)])  # one half, and after a while the other
        case ["endlessly"]:
            return Reply(SLOW, faults=[Stall()])
        case ["broken"]:
            return Status(400, "This is broken.")
        case _:
            return Reply(f"You said **{text}**.")


paid: list[int] = []


@tool
def pay(amount: int) -> str:
    """Pay an amount."""
    paid.append(amount)
    return f"paid {amount}"


@tool(read_only=True)
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


@dataclass
class Site:
    """A page that is being served, and what is behind it. `restart` brings the server back at the same address."""

    simulator: Simulator
    store: MemoryStore
    access: Access
    answers: Any
    instructions: dict[str, Any] = field(default_factory=dict)
    """The `system` of its clients."""
    more_tools: Sequence[AnyTool] = ()
    server: WebServer = field(init=False)

    def start(self, port: int = 0) -> None:
        self.kept = AsyncStore(self.store)
        checker = PermissionChecker()

        def options(model: str) -> EngineOptions:
            return {"key": "any", "base_url": self.simulator.base_url(model.partition(":")[0])}

        async def make_client(id: str, model: str) -> AsyncChatClient:
            tools = [pay, weather, *self.more_tools]
            given = {**options(model), **self.instructions}
            return AsyncChatClient(model, tools, store=self.kept, id=id, permission=checker, **given)

        self.page = Page(
            make_client,
            engine_options=options,
            store=self.kept,
            checker=checker,
            access=self.access,
            model=MODEL,
            models=["openai:gpt-4o"],
        )
        self.server = WebServer(self.page, port=port, when_closed=self.page.aclose)
        self.server.__enter__()

    def stop(self) -> None:
        self.server.__exit__()
        self.kept._workers().shutdown()  # the store itself lives on

    def restart(self) -> None:
        self.start(self.server.port)

    @property
    def address(self) -> str:
        return self.access.address(self.server.url)


@contextmanager
def serving(
    answers: Any = script, access: Access | None = None, more_tools: Sequence[AnyTool] = (), **instructions: Any
) -> Iterator[Site]:
    paid.clear()
    with Simulator(answers) as simulator, MemoryStore() as store:
        site = Site(simulator, store, access or Access(), answers, instructions, more_tools)
        site.start()
        try:
            yield site
        finally:
            site.stop()


@contextmanager
def chromium() -> Iterator[Browser]:
    if not CHROMIUM:
        pytest.skip("there is no Chromium here: apt-get install chromium, or name one in CHROMIUM")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
    asyncio.set_event_loop(None)


@contextmanager
def opened(browser: Browser, site: Site, **options: Any) -> Iterator[Tab]:
    """A tab on the page. Whatever it loads from elsewhere, or complains about, fails the test."""
    context: BrowserContext = browser.new_context(**options)
    tab = context.new_page()
    trouble: list[str] = []
    tab.on("request", lambda request: _note_foreign(request.url, site, trouble))
    tab.on("pageerror", lambda error: trouble.append(f"error: {error}"))
    tab.on("console", lambda message: _note_console(message, trouble))
    tab.goto(site.address)
    try:
        yield tab
        assert not trouble, trouble
    finally:
        context.close()


def _note_foreign(url: str, site: Site, trouble: list[str]) -> None:
    if not url.startswith((site.server.url, "data:", "blob:")):
        trouble.append(f"a request to {url}")


def _note_console(message: Any, trouble: list[str]) -> None:
    # What a server refuses, and one that is gone, the browser reports by itself.
    if message.type == "error" and "Failed to load resource" not in message.text:
        trouble.append(f"console: {message.text}")


def say(tab: Tab, text: str) -> None:
    tab.fill("#composer", text)
    tab.keyboard.press("Enter")


def wait_for_answer(tab: Tab) -> None:
    tab.wait_for_selector("button[aria-label=Send]")
