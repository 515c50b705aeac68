"""Whoever is quicker than the page loses no key: each moment in which one could get lost is held still here."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page as Tab, Route, expect

from dragoman import ToolCall
from dragoman.simulator import Drip, Reply, Request
from tests.web.pages import MODEL, SLOW, opened, say, serving, wait_for_answer

pytestmark = pytest.mark.slow

AT_ONCE = """
    const field = () => document.getElementById("composer");
    const focused = () => document.activeElement.id;
    const press = (key, more) => document.activeElement.dispatchEvent(
        new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true, ...more}));
    const drawn = async () => { for (let turn = 0; turn < 9; turn++) await null; };  // before any other key could come
"""


def hold(tab: Tab, url: str, method: str = "GET") -> list[Callable[[], None]]:
    """Let the first such request wait until what this list gets is called."""
    held: list[Callable[[], None]] = []

    def stop(route: Route) -> None:
        if held or route.request.method != method:
            route.continue_()
        elif method == "GET":  # it was answered, only the page does not know yet
            answer = route.fetch()
            held.append(lambda: route.fulfill(response=answer))
        else:
            held.append(route.continue_)

    tab.route(url, stop)
    return held


def hold_conversation(tab: Tab) -> list[Callable[[], None]]:
    """Load the page anew, whose conversation has not come yet."""
    held = hold(tab, f"**/api/conversations/{tab.url.rpartition('/')[2]}")
    tab.reload()
    return held


def test_the_field_has_the_focus_and_keys_are_heard_when_it_appears(browser: Browser) -> None:
    seen = """new MutationObserver((_, observer) => {
        if (!field()) return;
        observer.disconnect();
        window.seen = [focused()];
        document.activeElement.blur();
        press("/");
        window.seen.push(focused());
    }).observe(document, {childList: true, subtree: true});"""
    with serving() as site, opened(browser, site) as tab:
        tab.add_init_script(f"(() => {{ {AT_ONCE} {seen} }})()")
        tab.reload()
        assert tab.evaluate("window.seen") == ["composer", "composer"]


def test_what_is_said_before_the_server_told_about_itself(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        held = hold(tab, "**/api/about")
        tab.reload()
        tab.keyboard.type("hello")
        tab.keyboard.press("Enter")
        expect(tab.locator(".message.assistant strong")).to_have_text("hello")
        wait_for_answer(tab)
        assert [request.model for request in site.simulator.requests] == [MODEL.partition(":")[2]]
        held[0]()
        expect(tab.locator(".sidebar footer")).to_contain_text("dragoman")


def test_what_is_said_before_the_conversation_has_come(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        say(tab, "one")
        wait_for_answer(tab)
        held = hold_conversation(tab)
        tab.keyboard.type("slowly")
        tab.keyboard.press("Enter")
        expect(tab.locator(".message.user")).to_have_text("slowly")
        expect(tab.locator("#composer")).to_have_value("")
        assert len(site.simulator.requests) == 1
        held[0]()
        expect(tab.locator(".message.user")).to_have_text(["one", "slowly"])
        expect(tab.locator(".message.assistant").last).to_contain_text("w5")
        expect(tab.get_by_label("Stop")).to_be_visible()
        expect(tab.locator(".message.assistant").last).to_contain_text("w299")


def test_words_stay_if_the_conversation_that_comes_is_busy_or_missing(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        say(tab, "slowly")
        expect(tab.locator(".message.assistant")).to_contain_text("w5")
        held = hold_conversation(tab)
        say(tab, "next")
        held[0]()
        expect(tab.locator("#composer")).to_have_value("next")
        expect(tab.get_by_label("Stop")).to_be_visible()
        expect(tab.locator(".notice")).to_have_count(0)
        expect(tab.locator(".message.user")).to_have_text("slowly")
        expect(tab.locator(".message.assistant")).to_contain_text("w299")
        wait_for_answer(tab)
        tab.keyboard.press("Enter")
        expect(tab.locator(".message.assistant").last).to_contain_text("You said next")
        wait_for_answer(tab)

        site.store.delete(tab.url.rpartition("/")[2])
        site.stop()
        site.restart()
        held = hold_conversation(tab)
        say(tab, "are you there?")
        held[0]()
        expect(tab.locator(".talk")).to_contain_text("There is no such conversation")
        expect(tab.locator("#composer")).to_have_value("are you there?")


def test_escape_stops_a_turn_that_has_not_begun_yet(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        held = hold(tab, "**/api/conversations", "POST")
        say(tab, "slowly")
        tab.keyboard.press("Escape")
        held[0]()
        wait_for_answer(tab)
        assert "w299" not in tab.locator("body").inner_text()


def test_escape_right_behind_enter(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        tab.keyboard.type("slowly")
        pressed = 'press("Enter"); await drawn(); press("Escape"); await drawn();'
        told = tab.evaluate(
            f"async () => {{ {AT_ONCE} {pressed} return document.querySelector('.status').textContent }}"
        )
        assert told == "Stopping."
        wait_for_answer(tab)
        assert "w299" not in tab.locator("body").inner_text()


@pytest.mark.parametrize("width", [360, 1200])
def test_the_search_has_the_focus_before_the_next_key(browser: Browser, width: int) -> None:
    pressed = 'press("k", {ctrlKey: true}); await drawn(); return focused()'
    with serving() as site, opened(browser, site, viewport={"width": width, "height": 640}) as tab:
        for _ in range(2):
            tab.locator("#composer").focus()
            assert tab.evaluate(f"async () => {{ {AT_ONCE} {pressed} }}") == "search"


def test_a_dialog_has_the_focus_at_once_and_gives_it_back(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        button = tab.get_by_label("Model: anthropic")
        button.focus()
        clicked = "document.activeElement.click(); await drawn(); return focused()"
        assert tab.evaluate(f"async () => {{ {AT_ONCE} {clicked} }}") == "model-name"
        tab.keyboard.type("openai:gpt-4o")
        tab.keyboard.press("Enter")
        expect(tab.get_by_label("Model: openai:gpt-4o")).to_be_focused()


def test_a_message_that_is_late_leaves_the_conversation_alone_that_was_opened_since(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        for text in ("one", "two"):
            tab.keyboard.press("Control+Shift+O")
            say(tab, text)
            wait_for_answer(tab)
        held = hold(tab, "**/messages", "POST")
        say(tab, "late")
        tab.get_by_role("link", name="one").click()
        expect(tab.locator(".message.user")).to_have_text("one")
        with tab.expect_response("**/messages"):
            held[0]()
        say(tab, "at once")
        expect(tab.locator(".message.user")).to_have_text(["one", "at once"])
        expect(tab.locator(".message.assistant").last).to_contain_text("You said at once")
        tab.get_by_role("link", name="two").click()
        expect(tab.locator(".message.user")).to_have_text(["two", "late"])


def test_what_could_not_be_sent_stands_before_what_was_written_since(browser: Browser) -> None:
    with serving() as site, opened(browser, site) as tab:
        routes: list[Route] = []

        def keep(route: Route) -> None:
            routes.append(route)

        tab.route("**/api/conversations", keep)
        say(tab, "first")
        tab.keyboard.type("second")
        routes[-1].abort()
        expect(tab.locator("#composer")).to_have_value("first\nsecond")


def test_words_that_were_said_do_not_come_back_after_an_approval(browser: Browser) -> None:
    def answer(request: Request) -> Reply:
        if request.tool_results:
            return Reply(SLOW, faults=[Drip(size=600, seconds=0.04)])
        return Reply(ToolCall("p", "pay", '{"amount": 7}'))

    with serving(answer) as site, opened(browser, site) as tab:
        say(tab, "pay 7")
        tab.get_by_text("Allow once").click()
        expect(tab.locator(".message.assistant").last).to_contain_text("w299")
        wait_for_answer(tab)
        expect(tab.locator("#composer")).to_have_value("")
