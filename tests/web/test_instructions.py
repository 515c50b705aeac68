"""Pages send the instructions that the program has now; the table is in tests/instructions.py."""

from __future__ import annotations

from typing import Any

import pytest

from dragoman import ChatClient, MemoryStore, ScriptedEngine, ToolCall
from dragoman.chat import handoff
from dragoman.conversation import Message
from dragoman.stores import conversation_id
from dragoman.tools import AnyTool, fingerprint
from tests import instructions
from tests.instructions import Cell, Road, Sent, exercised_here
from tests.web import pages
from tests.web.test_frontends import pay, post, serving, ui
from tests.web.test_talks import Visitor, other_program

PAYING = ToolCall("c1", "pay", '{"amount": 7}')
HANDING = Message.assistant(ToolCall("h1", "desk", "{}"))


def _desk(options: dict[str, Any]) -> AnyTool:
    """An agent with these options, on the model of whoever hands over to it."""
    return handoff("desk", "Takes over.", **options)


def _begun(cell: Cell, store: MemoryStore, id: str, *replies: Message | str) -> None:
    ChatClient(ScriptedEngine(list(replies)), [pay], store=store, id=id, **cell.before).chat("Begin.")


def _front_end(cell: Cell) -> Sent:
    id = conversation_id("a")
    with serving(**cell.options) as (server, simulator, store):
        _begun(cell, store, id, "Fine.")
        status, _ = post(server, "/chat", {"id": "a", "messages": [ui("user", {"type": "text", "text": "x"})]})
        assert status == 200
        return Sent(simulator.requests[-1].system or None, store.latest(id).system_prompt)


def _front_end_approved(cell: Cell) -> Sent:
    id = conversation_id("t")
    with serving(**cell.options) as (server, simulator, store):
        _begun(cell, store, id, Message.assistant(PAYING))
        answer = {"interruptId": fingerprint(PAYING), "status": "resolved", "payload": {"approved": True}}
        body = {"threadId": "t", "runId": "r", "messages": [], "resume": [answer]}
        assert "paid" in post(server, "/agent", body)[1]
        return Sent(simulator.requests[-1].system or None, store.latest(id).system_prompt)


def _front_end_handed_over(cell: Cell) -> Sent:
    id, front = conversation_id("a"), {"system": "FRONT"}
    with serving(tools=[_desk(cell.options)], **front) as (server, simulator, store):
        ChatClient(ScriptedEngine([HANDING, "Fine."]), [_desk(cell.before)], store=store, id=id, **front).chat("Begin.")
        status, _ = post(server, "/chat", {"id": "a", "messages": [ui("user", {"type": "text", "text": "x"})]})
        assert status == 200
        return Sent(simulator.requests[-1].system or None, store.latest(id).system_prompt)


def _page(cell: Cell) -> Sent:
    with pages.serving(**cell.options) as site:
        with other_program(site) as other:
            if cell.own is not None:
                other.system = cell.own
            other.chat("Begin.")
            id = other.id or ""
        visitor = Visitor(site)
        status, _ = visitor.ask("POST", f"/{id}/messages", {"text": "x"})
        assert status == 202
        visitor.wait(id)
        return Sent(site.simulator.requests[-1].system or None, site.store.latest(id).system_prompt)


def _page_handed_over(cell: Cell) -> Sent:
    front, begun = {"system": "FRONT"}, ScriptedEngine([HANDING, "Fine."], name=pages.MODEL)
    with pages.serving(more_tools=[_desk(cell.options)], **front) as site:
        with ChatClient(begun, [_desk(cell.before)], store=site.store, **front) as other:
            other.chat("Begin.")
            id = other.id or ""
        visitor = Visitor(site)
        status, _ = visitor.ask("POST", f"/{id}/messages", {"text": "x"})
        assert status == 202
        visitor.wait(id)
        return Sent(site.simulator.requests[-1].system or None, site.store.latest(id).system_prompt)


ROADS: dict[str, Road] = {
    "a front end": _front_end,
    "a front end, approved": _front_end_approved,
    "a front end, handed over": _front_end_handed_over,
    "the page": _page,
    "the page, handed over": _page_handed_over,
}


@pytest.mark.parametrize("road", exercised_here(__name__, ROADS))
def test_what_is_sent(road: str) -> None:
    instructions.check(road, ROADS[road])
