"""The grammar of a turn: a call, an answer, or both."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from dragoman.engines.local.grammar import CallForm, Turn, turn_grammar
from dragoman.engines.local.prompt import FORM
from tests.engines.local.grammar.gbnf import Reading

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: dict[str, Any] = {"weather": CITY, "weather_report": {"type": "object", "properties": {}}, 'odd "name"': {}}


def reading(**fields: Any) -> Reading:
    text, notes = turn_grammar(Turn(form=FORM, **fields))
    assert not notes
    return Reading(text)


PARIS = FORM.call("weather", '{"city": "Paris"}')


@pytest.mark.parametrize(
    "text",
    [
        PARIS,
        "Let me look.\n\n" + PARIS,
        FORM.call("weather_report", "{}"),
        FORM.call('odd "name"', "[1, 2]"),
        "",
        "Just an answer.",
        '```json\n{"name": "weather", "arguments": {}}\n```',
        '```tool_call\n{"name": "alice"}\n```',
        '```tool_call\n{"name": "weather_x", "arguments": {}}',
        "```tool_call\n{",
        "``` ```tool ```tool_call",
        "漢字 ```python\nprint(1)\n```",
    ],
)
def test_allowed(text: str) -> None:
    assert reading(tools=TOOLS).accepts(text)


@pytest.mark.parametrize(
    "text",
    [
        FORM.call("weather", "{}"),
        FORM.call("weather", '{"city": 3}'),
        FORM.call("weather_report", '{"x": 1}'),
        PARIS + "\nAnd more.",
        PARIS + PARIS,
        PARIS.removesuffix("```"),
        FORM.start("weather"),
        FORM.opening + '"weather"',
        FORM.opening + '"weather", "other": 1}',
        "```" + FORM.call("weather", "{}"),
    ],
)
def test_a_call_that_was_opened_is_held_to_its_schema(text: str) -> None:
    assert not reading(tools=TOOLS).accepts(text)


def test_a_call_that_must_be() -> None:
    grammar = reading(tools={"weather": CITY}, must_call=True)
    assert grammar.accepts(PARIS)
    assert not grammar.accepts("No.")
    assert not grammar.accepts("First, " + PARIS)
    assert not grammar.accepts(FORM.call("weather_report", "{}"))


def test_an_answer_of_a_schema_beside_tools() -> None:
    grammar = reading(tools={"weather": CITY}, answer={"type": "object", "properties": {"name": {"type": "string"}}})
    assert grammar.accepts(PARIS)
    assert grammar.accepts('{"name": "weather"}')
    assert not grammar.accepts("The name is Paris.")


def test_an_answer_of_a_schema_alone() -> None:
    grammar = reading(answer={"type": "integer", "minimum": 3})
    assert grammar.accepts("4")
    assert not grammar.accepts("2")
    assert not grammar.accepts("four")


@pytest.mark.parametrize("answer", [None, {"type": "integer"}])
def test_thinking_comes_first(answer: Any) -> None:
    maybe = reading(tools={"weather": CITY}, answer=answer, thinks="maybe")
    for text in ("7", PARIS):
        assert maybe.accepts(text)
        assert maybe.accepts(f"<think>\nwhich < one? </thin\n</think>\n\n{text}")
        assert answer is None or not maybe.accepts(f"<think>{text}")
    always = reading(tools={"weather": CITY}, answer=answer, thinks="always")
    assert always.accepts(f"so…</think>\n\n{PARIS}")
    assert not always.accepts(PARIS)


def test_what_is_not_enforced_is_said_of_each_tool_and_of_the_answer() -> None:
    unique = {"type": "array", "uniqueItems": True}
    _, notes = turn_grammar(
        Turn(form=FORM, tools={"a": {}, "b": {"type": "object", "properties": {"x": unique}}}, answer=unique)
    )
    assert {name: [note.at for note in found] for name, found in notes.items()} == {
        "b": ["/properties/x/uniqueItems"],
        "": ["/uniqueItems"],
    }


@pytest.mark.parametrize("seed", range(40))
def test_no_text_that_is_made_opens_a_call_without_finishing_it(seed: int) -> None:
    """A form whose beginning repeats itself, which is where an automaton goes wrong."""
    random = Random(seed)
    form = CallForm("aab", "=", ";")
    grammar = Reading(turn_grammar(Turn(form=form, tools={"aa": {"const": 1}, "b": {"const": 2}}))[0])
    calls = {form.call("aa", "1"), form.call("b", "2")}
    for _ in range(200):
        text = "".join(
            random.choice(["a", "a", "b", '"', '"aa"', "=", "1", "2", ";"]) for _ in range(random.randrange(14))
        )
        at = [text.find(start) for start in ('aab"aa"', 'aab"b"') if start in text]
        allowed = not at or text[min(at) :] in calls
        assert grammar.accepts(text) == allowed, text
