"""What the page's server says of a conversation that others had their hands on too; without a browser."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from dragoman import ChatClient, ToolCall, tool
from dragoman.cli.session import Approver
from dragoman.errors import ConcurrentUseError
from dragoman.stores import ToolCallBegun
from dragoman.toolkit import PermissionChecker
from dragoman.tools import Allow, Deny
from tests.web.pages import MODEL, Site, paid, pay, serving, weather
from tests.web.test_access import ask, come_in


class Visitor:
    """Somebody who was let in."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._known = come_in(site)

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        status, _, text = ask(self._site, method, f"/api/conversations{path}", body, **self._known, **headers)
        return status, json.loads(text) if text.startswith((b"{", b"[")) else text

    def wait(self, id: str) -> Any:
        for _ in range(1_000):
            shown = self.ask("GET", f"/{id}")[1]
            if not shown["live"]:
                return shown
            time.sleep(0.02)
        raise AssertionError

    def begin(self, text: str) -> str:
        id = self.ask("POST", "", {"text": text})[1]["id"]
        self.wait(id)
        return id


def other_program(site: Site) -> ChatClient:
    return ChatClient(MODEL, [pay], store=site.store, key="any", base_url=site.simulator.base_url("anthropic"))


def test_uncertain_call_is_reported_after_a_restart() -> None:
    with serving() as site:
        id = Visitor(site).begin("pay 5")
        site.stop()
        newest = site.store.latest(id)
        site.store.record(newest.id, [ToolCallBegun(newest.conversation.pending_tool_calls[0])], after=0)
        site.restart()
        visitor = Visitor(site)
        [pending] = visitor.ask("GET", f"/{id}")[1]["pending"]
        assert pending["uncertain"]
        answer = {"fingerprint": pending["fingerprint"], "approved": True, "remember": "anything"}
        assert visitor.ask("POST", f"/{id}/answers", [answer])[0] == 400
        answer["remember"] = pending["rules"][0]
        assert visitor.ask("POST", f"/{id}/answers", [answer])[0] == 202
        visitor.wait(id)
        assert paid == [5]


def test_changes_of_other_programs_are_loaded() -> None:
    with serving() as site:
        visitor = Visitor(site)
        id = visitor.begin("hello")

        def meanwhile() -> None:
            with other_program(site) as other:
                other.restore(id)
                other.chat("from the terminal")

        meanwhile()
        assert visitor.ask("GET", f"/{id}")[1]["count"] == 4
        assert visitor.ask("PATCH", f"/{id}", {"title": "new"})[0] == 200
        meanwhile()
        assert visitor.ask("POST", f"/{id}/model", {"model": "openai:gpt-4o"})[0] == 200
        meanwhile()
        assert visitor.ask("POST", f"/{site.store.latest(id).id}/messages", {"text": "again"})[0] == 202
        shown = visitor.wait(id)
        assert (shown["count"], shown["title"]) == (10, "new")
        assert shown["messages"][-2]["blocks"][0]["text"] == "again"


def test_permanent_denial_does_not_ask_on_the_page() -> None:
    """The page lets the executor ask the approver, so that its answer must not be a question."""
    terminal: Any = None
    approver = Approver("deny", terminal, PermissionChecker())
    context: Any = None
    careful = tool(requires_approval=True, read_only=True)(weather.function)
    decisions = [
        approver.decide(ToolCall("a", each.name, arguments), each, context)
        for each, arguments in ((pay, '{"amount": 1}'), (careful, '{"city": "Oslo"}'), (weather, '{"city": "Oslo"}'))
    ]
    assert list(map(type, decisions)) == [Deny, Deny, Allow]


def test_an_unexpected_error_is_told_to_the_program_and_not_to_the_visitor(caplog: pytest.LogCaptureFixture) -> None:
    def system(_: object) -> str:
        raise LookupError("the template is gone")

    with serving(system=system) as site:
        visitor = Visitor(site)
        shown = visitor.wait(visitor.begin("hello"))
    assert "template" not in json.dumps(shown)
    [record] = [each for each in caplog.records if each.name == "dragoman.web"]
    assert record.exc_info is not None
    assert record.exc_info[0] is LookupError


def test_answer_during_a_turn_is_refused() -> None:
    with serving() as site:
        visitor = Visitor(site)
        id = visitor.ask("POST", "", {"text": "endlessly"})[1]["id"]
        answer = {"fingerprint": "any", "approved": True}
        assert visitor.ask("POST", f"/{id}/answers", [answer])[0] == 409
        talk = site.page._talks.find(id)  # pyright: ignore[reportPrivateUsage]
        assert talk is not None
        with pytest.raises(ConcurrentUseError):
            talk.answer([])
        assert not talk.answers
        visitor.ask("POST", f"/{id}/stop", {})
