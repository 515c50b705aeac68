"""Whoever is quicker than the page loses no key: each moment in which one could get lost is held still here."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page as Tab, Route, expect

from dragoman import ToolCall
from dragoman.simulator import Reply, Request
from tests.web.pages import MODEL, Site, opened, say, serving, wait_for_answer

pytestmark = pytest.mark.slow

AT_ONCE = """
    const field = () => document.getElementById("composer");
    const focused = () => document.activeElement.id;
    const press = (key, more) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true, ...more}));
    const drawn = async () => { for (let turn = 0; turn < 9; turn++) await null; };  // before any other key could come
"""


class Model:
    """Answers at once, but to "slowly" and to results only when it is let."""

    def __init__(self) -> None:
        self.let: threading.Event = threading.Event()

    async def answer(self, request: Request) -> Reply:
        text = request.last_user_text
        while (text == "slowly" or request.tool_results) and not self.let.is_set():  # noqa: ASYNC110 -- set in another thread
            await asyncio.sleep(0.01)
        if text == "pay 7" and not request.tool_results:
            return Reply(ToolCall("p", "pay", '{"amount": 7}'))
        return Reply(f"You said {text}.")


def hold(
    tab: Tab, url: str, method: str = "GET", then: Callable[[Route], None] = Route.continue_
) -> Callable[[], None]:
    """Let the first such request wait until what this returns is called."""
    held: list[Callable[[], None]] = []
    coming: list[Route] = []

    def stop(route: Route) -> None:
        if coming or route.request.method != method:
            route.continue_()
            return
        coming.append(route)
        if method == "GET":  # it was answered, only the page does not know yet
            answer = route.fetch()
            held.append(lambda: route.fulfill(response=answer))
        else:
            held.append(lambda: then(route))

    def release() -> None:
        while not held:
            tab.wait_for_timeout(10)
        held[0]()

    tab.route(url, stop)
    return release


def hold_conversation(tab: Tab) -> Callable[[], None]:
    """Load the page anew, whose conversation has not come yet."""
    release = hold(tab, f"**/api/conversations/{tab.url.rpartition('/')[2]}")
    tab.reload()
    return release


def test_field_has_focus_and_accepts_keys_at_once(tab: Tab) -> None:
    seen = """new MutationObserver((_, observer) => {
        if (!field()) return;
        observer.disconnect();
        window.seen = [focused()];
        document.activeElement.blur();
        press("/");
        window.seen.push(focused());
    }).observe(document, {childList: true, subtree: true});"""
    tab.add_init_script(f"(() => {{ {AT_ONCE} {seen} }})()")
    tab.reload()
    assert tab.evaluate("window.seen") == ["composer", "composer"]


def test_message_before_the_server_info_has_arrived(site: Site, tab: Tab) -> None:
    release = hold(tab, "**/api/about")
    tab.reload()
    tab.keyboard.type("hello")
    tab.keyboard.press("Enter")
    expect(tab.locator(".message.assistant strong")).to_have_text("hello")
    wait_for_answer(tab)
    assert [request.model for request in site.simulator.requests] == [MODEL.partition(":")[2]]
    release()
    expect(tab.locator(".sidebar footer")).to_contain_text("dragoman")


def test_message_before_the_conversation_has_loaded(browser: Browser) -> None:
    model = Model()
    with serving(model.answer) as site, opened(browser, site) as tab:
        say(tab, "one")
        wait_for_answer(tab)
        release = hold_conversation(tab)
        tab.keyboard.type("slowly")
        tab.keyboard.press("Enter")
        expect(tab.locator(".message.user")).to_have_text("slowly")
        expect(tab.locator("#composer")).to_have_value("")
        assert len(site.simulator.requests) == 1
        release()
        expect(tab.locator(".message.user")).to_have_text(["one", "slowly"])
        expect(tab.get_by_label("Stop")).to_be_visible()
        model.let.set()
        expect(tab.locator(".message.assistant").last).to_contain_text("You said slowly")


def test_text_stays_if_the_conversation_is_busy_or_missing(browser: Browser) -> None:
    model = Model()
    with serving(model.answer) as site, opened(browser, site) as tab:
        say(tab, "slowly")
        expect(tab).to_have_url(re.compile("/c/"))
        release = hold_conversation(tab)
        say(tab, "next")
        release()
        expect(tab.locator("#composer")).to_have_value("next")
        expect(tab.get_by_label("Stop")).to_be_visible()
        expect(tab.locator(".notice")).to_have_count(0)
        expect(tab.locator(".message.user")).to_have_text("slowly")
        model.let.set()
        wait_for_answer(tab)
        tab.locator("#composer").press("Enter")
        expect(tab.locator(".message.assistant").last).to_contain_text("You said next")
        wait_for_answer(tab)

        site.store.delete(tab.url.rpartition("/")[2])
        site.stop()
        site.restart()
        release = hold_conversation(tab)
        say(tab, "are you there?")
        release()
        expect(tab.locator(".talk")).to_contain_text("There is no such conversation")
        expect(tab.locator("#composer")).to_have_value("are you there?")


def test_escape_stops_a_turn_before_it_starts(browser: Browser) -> None:
    with serving(Model().answer) as site, opened(browser, site) as tab:
        release = hold(tab, "**/api/conversations", "POST")
        say(tab, "slowly")
        tab.keyboard.press("Escape")
        release()
        wait_for_answer(tab)


def test_escape_right_after_enter(browser: Browser) -> None:
    pressed = 'press("Enter"); await drawn(); press("Escape"); await drawn();'
    with serving(Model().answer) as site, opened(browser, site) as tab:
        expect(tab.get_by_label("Model: anthropic")).to_be_visible()
        tab.fill("#composer", "slowly")
        told = tab.evaluate(
            f"async () => {{ {AT_ONCE} {pressed} return document.querySelector('.status').textContent }}"
        )
        assert told == "Stopping."
        wait_for_answer(tab)


@pytest.mark.parametrize("width", [360, 1200])
def test_the_search_has_the_focus_before_the_next_key(browser: Browser, width: int) -> None:
    pressed = 'press("k", {ctrlKey: true}); await drawn(); return focused()'
    with serving() as site, opened(browser, site, viewport={"width": width, "height": 640}) as tab:
        for _ in range(2):
            tab.locator("#composer").focus()
            assert tab.evaluate(f"async () => {{ {AT_ONCE} {pressed} }}") == "search"


def test_a_dialog_has_the_focus_at_once_and_gives_it_back(tab: Tab) -> None:
    button = tab.get_by_label("Model: anthropic")
    button.focus()
    clicked = "document.activeElement.click(); await drawn(); return focused()"
    assert tab.evaluate(f"async () => {{ {AT_ONCE} {clicked} }}") == "model-name"
    tab.keyboard.type("openai:gpt-4o")
    tab.keyboard.press("Enter")
    expect(tab.get_by_label("Model: openai:gpt-4o")).to_be_focused()


def test_late_message_does_not_change_the_open_conversation(tab: Tab) -> None:
    for text in ("one", "two"):
        tab.keyboard.press("Control+Shift+O")
        say(tab, text)
        wait_for_answer(tab)
    release = hold(tab, "**/messages", "POST")
    say(tab, "late")
    tab.get_by_role("link", name="one").click()
    expect(tab.locator(".message.user")).to_have_text("one")
    with tab.expect_response("**/messages"):
        release()
    say(tab, "at once")
    expect(tab.locator(".message.user")).to_have_text(["one", "at once"])
    expect(tab.locator(".message.assistant").last).to_contain_text("You said at once")
    tab.get_by_role("link", name="two").dispatch_event("click")  # the list may be moving under a mouse
    expect(tab.locator(".message.user")).to_have_text(["two", "late"])


def test_unsent_text_is_put_before_newer_text(tab: Tab) -> None:
    release = hold(tab, "**/api/conversations", "POST", then=Route.abort)
    say(tab, "first")
    tab.keyboard.type("second")
    release()
    expect(tab.locator("#composer")).to_have_value("first\nsecond")


def test_sent_text_does_not_return_after_an_approval(browser: Browser) -> None:
    model = Model()
    with serving(model.answer) as site, opened(browser, site) as tab:
        say(tab, "pay 7")
        with tab.expect_response("**/events"):  # the page follows the turn that goes on
            tab.get_by_text("Allow once").click()
        model.let.set()
        expect(tab.locator(".message.assistant").last).to_contain_text("You said pay 7")
        wait_for_answer(tab)
        expect(tab.locator("#composer")).to_have_value("")


def test_message_waits_for_a_file_that_is_being_read(site: Site, tab: Tab) -> None:
    hold_reading = """() => {
        const read = FileReader.prototype.readAsDataURL;
        window.held = [];
        FileReader.prototype.readAsDataURL = function (file) { window.held.push(() => read.call(this, file)); };
        const transfer = new DataTransfer();
        transfer.items.add(new File(["dear diary"], "diary.txt", {type: "text/plain"}));
        window.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer}));
    }"""
    tab.evaluate(hold_reading)
    say(tab, "read this")
    tab.wait_for_timeout(50)
    assert not site.simulator.requests
    tab.evaluate("held.forEach((go) => go())")
    wait_for_answer(tab)
    expect(tab.locator(".message.user")).to_contain_text("diary.txt")
    assert "dear diary" in site.simulator.requests[0].raw.decode()
