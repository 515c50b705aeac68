"""How well a local model chooses tools and keeps to schemas, on prompts that lie beside this file.

    python bench/local_quality.py                    the default model, everything
    python bench/local_quality.py --model local:/path/to/file.gguf --only tools
    python bench/local_quality.py --prompts my.json  prompts of your own, in the form of local_prompts/*.json

tools        each case is one question to a model that has the file's tools, or those of them that the case offers: is
             the right one called, or none where none is needed, and with the right arguments?
talk         the same after some small talk, which distracts small models
results      a call, its result, and an answer that must use it
typed        a question with tools and a typed answer, in one turn, and as a turn and a typed question after it: does
             the turn end, is the answer right, and was nothing called but the one tool that is needed, if any?
structured   schemas made at random (by a seed), each answered once: is the answer valid?

Answers are taken as they come, at temperature 0. The exit status is 1 if a rate is below its `--at-least`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

import jsonschema_rs
from msgspec import Raw

from dragoman import ChatClient, Conversation, Engine, Limits, Message, ModelOptions, ToolSpec, engine
from dragoman.conversation import Text, ToolResult
from dragoman.errors import InvalidAnswerError
from dragoman.loop import Done
from dragoman.providers import ResponseFormat, answer_text
from dragoman.tools import AnyTool, Tool

HERE = Path(__file__).parent
PARTS = ("tools", "talk", "results", "typed", "structured")
OURS = ("everyday", "unseen", "varied", "apart")
TALK = (
    Message.user("Hi there, my name is Kim."),
    Message.assistant("Hello Kim! How can I help you today?"),
    Message.user("Say something nice about gardens."),
    Message.assistant("A garden is a quiet place where patience turns into flowers."),
)


def matches(wanted: Any, given: Any) -> bool:
    """Whether an argument is what was asked for; case and blanks around a text make no difference."""
    if isinstance(wanted, dict) and "one_of" in wanted:
        return any(matches(one, given) for one in wanted["one_of"])
    if isinstance(wanted, dict) and "contains" in wanted:
        return isinstance(given, str) and wanted["contains"].lower() in given.lower()
    if isinstance(wanted, dict):
        return (
            isinstance(given, dict)
            and wanted.keys() == given.keys()
            and all(matches(value, given[name]) for name, value in wanted.items())
        )
    if isinstance(wanted, list):
        return isinstance(given, list) and len(wanted) == len(given) and all(map(matches, wanted, given))
    if isinstance(wanted, str) and isinstance(given, str):
        return wanted.strip().lower() == given.strip().lower()
    return isinstance(wanted, bool) == isinstance(given, bool) and wanted == given


def right_arguments(case: dict[str, Any], given: dict[str, object]) -> bool:
    wanted = case["arguments"]
    extra = given.keys() - wanted.keys() - set(case.get("may", ()))
    return not extra and all(name in given and matches(value, given[name]) for name, value in wanted.items())


def specs(told: list[dict[str, Any]]) -> list[ToolSpec]:
    return [ToolSpec(one["name"], one["description"], Raw(json.dumps(one["parameters"]).encode())) for one in told]


def tools(
    model: Engine, file: Path, before: tuple[Message, ...], say: Any, *, longest: int = 200
) -> tuple[int, int, int]:
    """How many cases there are, in how many the right tool was chosen, and in how many with the right arguments."""
    prompts = json.loads(file.read_text(encoding="utf-8"))
    known = {spec.name: spec for spec in specs(prompts["tools"])}
    chosen = right = 0
    options = ModelOptions(temperature=0.0, max_tokens=longest, seed=1)
    for case in prompts["cases"]:
        offered = [known[name] for name in case.get("offer", known)]
        conversation = Conversation().plus(*before, Message.user(case["ask"]))
        message = model.reply(conversation, tools=offered, options=options).message
        calls = message.tool_calls
        name = calls[0].name if calls else None
        good = name == case.get("call") and len(calls) <= 1
        exact = good and (not calls or (not calls[0].partial and right_arguments(case, calls[0].parsed)))
        chosen += good
        right += exact
        if not exact:
            say(f"    {case['ask']!r}: {calls[0].name + ' ' + calls[0].arguments if calls else message.text[:150]!r}")
    return len(prompts["cases"]), chosen, right


def results(model: Engine, file: Path, say: Any) -> tuple[int, int]:
    """How many cases there are, and in how many the answer after the tool's result says what the result says."""
    cases = json.loads(file.read_text(encoding="utf-8"))["cases"]
    good = 0
    options = ModelOptions(temperature=0.0, max_tokens=200, seed=1)
    for case in cases:
        offered = specs(case["tools"])
        conversation = Conversation().plus(Message.user(case["ask"]))
        for given in case["results"]:
            message = model.reply(conversation, tools=offered, options=options).message
            conversation = conversation.plus(message)
            if not message.tool_calls:
                break
            call = message.tool_calls[0]
            conversation = conversation.plus(Message.tool([ToolResult(call.id, call.name, (Text(given),))]))
        if conversation.messages[-1].role == "tool":
            conversation = conversation.plus(model.reply(conversation, tools=offered, options=options).message)
        said = conversation.messages[-1].text
        fine = len(conversation.messages) == 2 + 2 * len(case["results"]) and all(
            any(form.lower() in said.lower() for form in forms) for forms in case["says"]
        )
        good += fine
        if not fine:
            turns = [m.text or [f"{c.name} {c.arguments}" for c in m.tool_calls] for m in conversation.messages[1:]]
            say(f"    {case['ask']!r}: {turns}")
    return len(cases), good


_SHORT = Limits(steps=4)


def returning(text: str, told: dict[str, Any]) -> AnyTool:
    """The tool of this description; it always returns this text."""
    return Tool.from_schema(lambda **_: text, told["parameters"], name=told["name"], description=told["description"])


def answered(client: ChatClient, case: dict[str, Any], *, in_one_turn: bool) -> tuple[bool, object]:
    """Whether the turn ended by itself, and the answer."""
    try:
        if in_one_turn:
            result = client.chat(case["ask"], answer=case["answer"])
            return (True, result.answer) if isinstance(result.ending, Done) else (False, None)
        if not isinstance(client.chat(case["ask"]).ending, Done):
            return False, None
        return True, client.ask("Give the answer to that as data.", case["answer"])
    except InvalidAnswerError as error:
        return True, error.text


def typed(model: Engine, file: Path, say: Any, *, in_one_turn: bool) -> tuple[int, int, int, int]:
    """How many cases there are, how many turns ended, how many with the right answer, and with no other calls."""
    prompts = json.loads(file.read_text(encoding="utf-8"))
    known = {told["name"]: told for told in prompts["tools"]}
    options = ModelOptions(temperature=0.0, max_tokens=200, seed=1)
    ended = right = exact = 0
    for case in prompts["cases"]:
        offered = [returning(case["returns"], known[name]) for name in case["offer"]]
        before = Conversation().plus(*(TALK if case.get("talk") else ()))
        with ChatClient(
            model, offered, conversation=before, options=options, limits=_SHORT, on_limit="return"
        ) as client:
            done, answer = answered(client, case, in_one_turn=in_one_turn)
            calls = [call.name for message in client.history for call in message.tool_calls]
        fine = done and matches(case["right"], answer)
        ended += done
        right += fine
        exact += fine and calls == case["calls"]
        if not fine or calls != case["calls"]:
            say(f"    {case['ask']!r}: {calls}, {answer!r}")
    return len(prompts["cases"]), ended, right, exact


# --- schemas at random ---

_WORDS = ("name", "age", "city", "tags", "price", "kind", "active", "notes", "size", "owner", "items", "date")


def schema(random: Random, depth: int = 2) -> dict[str, Any]:
    """A schema such as people write."""
    makers: list[Any] = [
        lambda: {"type": "string", "maxLength": random.choice([5, 12, 30])},
        lambda: {"type": "integer", "minimum": random.randint(-50, 10), "maximum": random.randint(11, 5000)},
        lambda: {"type": "number", "exclusiveMinimum": 0, "maximum": random.choice([1, 9.99, 1000])},
        lambda: {"type": "boolean"},
        lambda: {"enum": random.sample(["red", "green", "blue", 1, 2.5, None, True], 3)},
        lambda: {"type": "string", "format": random.choice(["date", "uuid", "email"])},
        lambda: {"type": "string", "pattern": random.choice(["^[A-Z]{2}-[0-9]{4}$", "^#[0-9a-f]{6}$"])},
        lambda: {"type": ["integer", "null"]},
    ]
    if depth:
        makers += [lambda: members(random, depth - 1)] * 2
        makers.append(lambda: {"type": "array", "items": schema(random, depth - 1), "maxItems": random.randint(1, 3)})
        makers.append(lambda: {"anyOf": [schema(random, 0), members(random, 0)]})
        values = {"type": "integer", "minimum": 0, "maximum": 9}
        makers.append(lambda: {"type": "object", "additionalProperties": values, "maxProperties": 3})
    return random.choice(makers)()


def members(random: Random, depth: int) -> dict[str, Any]:
    names = random.sample(_WORDS, random.randint(1, 4))
    needed = random.sample(names, random.randint(0, len(names)))
    properties = {name: schema(random, depth) for name in names}
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}


def structured(model: Engine, count: int, seed: int, say: Any) -> tuple[int, int]:
    """How many answers there were, and how many are valid."""
    valid = 0
    random = Random(seed)  # noqa: S311 -- schemas, not secrets
    for number in range(count):
        wanted = members(random, 2)
        form = ResponseFormat(schema=Raw(json.dumps(wanted).encode()))
        # Half of them at a high temperature: the grammar must hold whatever the model would like to write.
        options = ModelOptions(
            response_format=form, temperature=1.5 if number % 2 else 0.0, seed=number, max_tokens=600
        )
        message = model.reply(Conversation().plus(Message.user("Make up an example.")), options=options).message
        try:
            value = json.loads(answer_text(message))
            fine = jsonschema_rs.Draft202012Validator(wanted, validate_formats=True).is_valid(value)
        except ValueError:
            fine = False
        valid += fine
        if not fine:
            say(f"    {json.dumps(wanted)}: {message.text[:300]!r} ({message.stop_reason})")
    return count, valid


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", default="local:", help="which model (default: the default one)")
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--prompts", type=Path, action="append", help="files of prompts in place of ours")
    parser.add_argument("--schemas", type=int, default=100, help="how many schemas are made (default: 100)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--at-least", type=float, default=0.0, help="the lowest rate of right choices, from 0 to 1")
    parser.add_argument("--quiet", action="store_true", help="only the rates")
    given = parser.parse_args()
    only = given.only or PARTS
    say = (lambda _line: None) if given.quiet else (lambda line: print(line, flush=True))
    files = given.prompts or [HERE / "local_prompts" / f"{name}.json" for name in OURS]
    enough = True

    def rate(  # noqa: PLR0917 -- a line of a table
        what: str, right: int, count: int, began: float, more: str = "", least: float = 0.0
    ) -> None:
        nonlocal enough
        enough = enough and right >= least * count
        print(f"{what:32} {right:4}/{count}{more}   {time.monotonic() - began:.0f} s", flush=True)

    with engine(given.model) as model:
        for part, before in (("tools", ()), ("talk", TALK)):
            # Small talk makes each question longer: with our own prompts two files of it are enough.
            for file in (files if given.prompts or part == "tools" else files[:2]) if part in only else ():
                began = time.monotonic()
                count, chosen, right = tools(model, file, before, say)
                rate(f"{part} {file.stem}", chosen, count, began, f", arguments {right}/{count}", given.at_least)
        if "results" in only:
            began = time.monotonic()
            count, good = results(model, HERE / "local_prompts" / "results.json", say)
            rate("results", good, count, began)
        for what, in_one_turn in (("typed", True), ("typed afterwards", False)) if "typed" in only else ():
            began = time.monotonic()
            file = HERE / "local_prompts" / "typed.json"
            count, ended, right, exact = typed(model, file, say, in_one_turn=in_one_turn)
            rate(what, right, count, began, f", no other calls {exact}/{count}, ended {ended}/{count}")
        if "structured" in only:
            began = time.monotonic()
            count, valid = structured(model, given.schemas, given.seed, say)
            rate("structured", valid, count, began, least=1.0)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main())
