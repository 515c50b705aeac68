"""One question, one answer."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.chat import answer_type
from dragoman.cli.arguments import UsageError
from dragoman.cli.ask import parse_short_schema, read_schema
from dragoman.conversation import Citation, StopReason, Text, Thinking, ToolCall
from dragoman.simulator import Cut, Reply, Request, Simulator, Status
from tests.cli.running import MODEL, Surroundings, calling
from tests.processes import started

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)


def test_the_answer_goes_to_stdout_and_everything_else_to_stderr(around: Surroundings) -> None:
    looking = calling("calculator", {"expression": "6*7"}, text="Let me see.")
    script = [Reply(Thinking("Hm.", provider=""), *looking.blocks), "It is 42."]
    done = around.ask(script, "What is 6*7?", "-T", "calculator", "--usage")
    assert (done.code, done.out) == (0, "Let me see.\nIt is 42.\n")
    assert "thinking: Hm." in done.err
    assert '→ calculator {"expression": "6*7"}' in done.err
    assert re.search(r"← calculator \d+\.\d s: 42", done.err)
    assert "tokens: " in done.err


def test_quiet_prints_only_the_answer(around: Surroundings) -> None:
    done = around.ask([calling("calculator", {"expression": "1+1"}), "2"], "Add.", "-T", "calculator", "-q")
    assert (done.code, done.out, done.err) == (0, "2\n", "")
    assert around.here("Add.", "-q", "-m", "opnai:x").ended(2), "errors are said"


def test_sources_are_printed_to_stderr(around: Surroundings) -> None:
    pages = (Citation(url="https://a.ch/x", title="A\x1b[2J page"), Citation(url="https://b.ch"))
    cited = Reply(Text("It rains.", citations=pages))
    done = around.ask([cited], "Weather?")
    assert (done.code, done.out) == (0, "It rains.\n")
    assert "2. https://b.ch\n" in done.err
    assert "page https://a.ch/x\n" in done.err
    assert "\x1b" not in done.err
    assert around.ask([cited], "Weather?", "-q").err == ""
    told = around.ask([cited], "Weather?", "--json")
    assert [one["url"] for one in json.loads(told.out)["citations"]] == ["https://a.ch/x", "https://b.ch"]
    assert "https" not in told.err


def test_standard_input_is_appended_to_the_question(around: Surroundings) -> None:
    with around.talking():
        assert around.here("Sum up:", stdin="one\ntwo\n").out == "You said: Sum up:\n\none\ntwo\n"
        assert around.here("-", stdin="from a pipe\n").out == "You said: from a pipe\n"
        assert around.here(stdin="only a pipe\n").out == "You said: only a pipe\n"
        assert around.here("No input.", stdin=None).out == "You said: No input.\n"
        assert around.here("ask", "two", "words", stdin="").out == "You said: two words\n"


def test_attachments_and_piped_images(around: Surroundings) -> None:
    (around.work / "a.png").write_bytes(PNG)
    (around.work / "notes.py").write_text("print('ä')\n")
    (around.work / "odd").write_bytes(b"\xff\x00\xff")
    with around.talking() as simulator:
        assert around.here("Look.", "-a", "a.png", "-a", "notes.py", "--at", "odd", "image/png", stdin=PNG).code == 0
        body = json.dumps(simulator.requests[0].body, ensure_ascii=False)
        assert body.count("data:image/png;base64,") == 3
        assert "File notes.py:" in body
        assert "print('ä')" in body
        for name, words in {
            "missing.png": "cannot be read: No such file",
            "odd": "--at FILE image/png",
            "https://host.test/picture": "--at https://host.test/picture image/png",
        }.items():
            assert around.here("Look.", "-a", name).ended(2, words)
        assert around.here("Look.", stdin=b"\xff\xfe\x00\x01").ended(2, "neither text nor a known file type")
        assert len(simulator.requests) == 1


CALCULATING = [calling("calculator", {"expression": "6*7"}), "It is 42."]


def test_json_is_one_object(around: Surroundings) -> None:
    with around.talking(CALCULATING):
        done = around.apart("What is 6*7?", "-T", "calculator", "--json")
    found = json.loads(done.out)
    assert (found["text"], found["model"], found["stop_reason"]) == ("It is 42.", MODEL, "end")
    assert found["exit_code"] == done.code == 0
    assert found["usage"]["output"] > 0
    [call] = found["tool_calls"]
    assert (call["arguments"], call["result"]) == ({"expression": "6*7"}, "42")
    assert len(found["conversation"]) == 36


def test_json_lines_are_the_events_and_the_result(around: Surroundings) -> None:
    lines = around.ask(CALCULATING, "What is 6*7?", "-T", "calculator", "--json-lines").lines
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "reply_started"
    assert kinds.index("tool_started") < kinds.index("tool_finished") < kinds.index("text_delta")
    assert "".join(line["text"] for line in lines if line["type"] == "text_delta") == "It is 42."
    assert (lines[-1]["type"], lines[-1]["text"]) == ("result", "It is 42.")


def test_errors_are_json_too(around: Surroundings) -> None:
    with around.talking([Status(500)] * 20):
        around.set(DRAGOMAN_RETRY_MAX_ATTEMPTS="1")
        done = around.here("Hello.", "--json")
        assert done.ended(6)
        assert done.json["error"]["exit_code"] == 6
        assert done.json["conversation"] is None
        lines = around.here("Hello.", "--json-lines").lines
        assert lines[-1]["error"]["type"] == done.json["error"]["type"]
    wrong = around.here("Hello.", "--json", "-m", "opnai:model")
    assert "There is no provider 'opnai'" in wrong.json["error"]["message"]


def test_answer_with_a_schema(around: Surroundings) -> None:
    answer = '{"name": "Ada", "age": 36, "tags": ["maths"]}'
    with around.talking([answer, answer]) as simulator:
        done = around.here("Invent a person.", "--schema", "name, age int, tags list")
        assert done.json == json.loads(answer)
        assert '"additionalProperties": false' in json.dumps(simulator.requests[0].body)
        assert around.here("Another.", "--schema", "name, age int, tags list", "--json").json["answer"]["age"] == 36
    assert around.ask(["{}", "{}"], "Invent a person.", "--schema", "name").ended(7), "it never fits"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--schema", '{"type": "objekt"}'),
        ("-T", "calculatr"),
        ("--schema", "name", "-T", "now"),
        ("-a", "not-there.png"),
    ],
    ids=["schema", "tool", "both", "attachment"],
)
def test_wrong_arguments_do_not_cost_a_download(around: Surroundings, wrong: tuple[str, ...]) -> None:
    around.set(DRAGOMAN_MODEL_DIR=str(around.home / "models"))
    done = around.here("Hello.", "-m", "local:qwen2.5-coder-1.5b", *wrong)
    assert done.code == 2
    assert "downloading" not in done.err
    assert around.here("Hello.", "--json", "-m", "local:qwen2.5-coder-1.5b", *wrong).json["error"]["exit_code"] == 2


def test_losses_are_reported_or_refused(around: Surroundings) -> None:
    (around.work / "a.png").write_bytes(PNG)
    around.configure('[keys.openai]\nenv = "KEY"\nhosts = ["127.0.0.1"]\n')
    with Simulator() as simulator:
        around.set(KEY="k", DRAGOMAN_BASE_URL=simulator.base_url("openai"))
        blind = ("What is it?", "-a", "a.png", "-m", "openai:gpt-3.5-turbo")
        done = around.apart(*blind)
        assert (done.code, done.out) == (0, "You said: What is it?\n")
        assert done.ended(0, "dragoman: openai:gpt-3.5-turbo does not get all of the conversation: ", "takes no image")
        assert around.here(*blind, "--strict").ended(1, "takes no image", "Leave --strict out")
        assert len(simulator.requests) == 1
        assert around.here(*blind[:3], "-m", "openai:gpt-4o").err == ""


NOISY = """
import os, subprocess, sys
print("imported")


def noisy() -> str:
    print("printed")
    sys.__stdout__.write("past sys.stdout\\n")
    os.write(1, b"to the descriptor\\n")
    subprocess.run(["echo", "from a child"], check=True)
    return "done"
"""


@pytest.mark.parametrize("mode", [["--json"], ["--json-lines"], []])
def test_output_of_tools_goes_to_stderr(mode: list[str], around: Surroundings) -> None:
    (around.work / "noisy.py").write_text(NOISY)
    with around.talking([calling("noisy", {}), "Quiet."]):
        done = around.apart("Go.", "-T", "noisy.py", "--approve", "auto", *mode)
    assert done.code == 0, done.err
    assert (done.lines[-1]["text"] if mode else done.out.strip()) == "Quiet."
    for noise in ("imported", "printed", "past sys.stdout", "to the descriptor", "from a child"):
        assert noise in done.err
    assert around.here("tools", "list", "noisy.py", "--json").json[0]["name"] == "noisy"


def test_system_prompt_options_and_model_are_sent(around: Surroundings) -> None:
    with around.talking() as simulator:
        arguments = ["-s", "Be brief.", "-o", "temperature", "0.2", "-o", "max_tokens", "99", "-o", "stop", "END"]
        assert around.here("Hi.", *arguments, "-m", "openai-compatible:other").code == 0
        body = simulator.requests[0].body
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (body["temperature"], body["max_tokens"], body["stop"], body["model"]) == (0.2, 99, ["END"], "other")


# --- continuing -------------------------------------------------------------------------------------------------------


def test_a_conversation_is_continued(around: Surroundings) -> None:
    with around.talking() as simulator:
        first = around.here("One.", "--json").json
        around.here("Another conversation.")
        second = around.here("Two.", "--cid", first["conversation"][-8:], "--json").json
        assert second["conversation"] == first["conversation"]
        around.here("-c", "Three.")
        messages = simulator.requests[-1].body["messages"]
    assert [message["content"] for message in messages if message["role"] == "user"] == ["One.", "Two.", "Three."]


def test_model_and_system_prompt_are_kept_unless_changed(around: Surroundings) -> None:
    with around.talking() as simulator:
        for arguments, model, system in (
            (["-m", "openai-compatible:first"], "first", None),
            (["-c"], "first", None),
            (["-c", "-m", "openai-compatible:second"], "second", None),
            (["-c", "-s", "Be kind."], "second", "Be kind."),
            (["-c"], "second", "Be kind."),
        ):
            around.here("Go on.", *arguments)
            body = simulator.requests[-1].body
            assert body["model"] == model
            assert body["messages"][0]["content"] == (system or "Go on.")


def test_the_next_model_answers_if_one_fails(around: Surroundings, caplog: pytest.LogCaptureFixture) -> None:
    chain = "openai-compatible:first, openai-compatible:second"

    def answer(request: Request) -> Status | str:
        return Status(503) if request.model == "first" else "Here."

    with around.talking(answer) as simulator:
        around.configure("[retry]\nfirst_wait = 0.0\n")
        done = around.here("Hi.", "-m", chain, "--json")
        assert (done.json["text"], done.json["model"]) == ("Here.", "openai-compatible:second")
        assert "openai-compatible:first failed: overloaded, status 503; asking openai-compatible:second" in caplog.text
        assert around.here("doctor", "--offline", "-m", chain).out.count("openai-compatible") >= 2
        around.set(DRAGOMAN_MODEL=chain)
        before = len(simulator.requests)
        assert around.here("Go on.", "-c").out == "Here.\n", "the chain that is configured is kept"
        assert [request.model for request in simulator.requests[before:]] == ["second"], "its breaker is still open"


def test_nothing_to_continue(around: Surroundings) -> None:
    with around.talking():
        assert "There is no conversation to continue." in around.here("-c", "Go on.").err
        around.here("Hello.")
        assert around.here("-c").ended(2, "there is nothing to continue")
        assert "There is no conversation 'abcdef'" in around.here("--cid", "abcdef", "Go on.").err
        assert "too short" in around.here("--cid", "a", "Go on.").err


def test_no_log_keeps_nothing(around: Surroundings) -> None:
    with around.talking():
        assert around.here("Hello.", "-n").code == 0
        around.configure("[cli]\nlog = false\n")
        assert around.here("Hello.").code == 0
    assert not (around.home / ".local").exists()
    around.configure("")
    assert "There are no conversations." in around.here("history", "list").err


def test_a_turn_that_fails_at_once_leaves_no_conversation(around: Surroundings) -> None:
    with around.talking([Status(400)]):
        assert around.here("Hello.").code == 1
        assert "There are no conversations." in around.here("history", "list").err


def test_a_broken_store_is_reported_and_the_question_is_answered(around: Surroundings) -> None:
    place = around.home / ".local" / "share" / "dragoman"
    place.mkdir(parents=True)
    (place / "conversations.db").write_bytes(b"this is no database" * 100)
    done = around.ask(None, "Hello.")
    assert (done.code, done.out) == (0, "You said: Hello.\n")
    assert "this conversation is not kept" in done.err
    assert around.here("-c", "Go on.").code != 0


# --- endings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "code", "words"),
    [
        (Reply("Half an ans", stop_reason=StopReason.MAX_TOKENS), 5, "cut off at the token limit"),
        (Reply(Text("No."), stop_reason=StopReason.CONTENT_FILTER), 7, "withheld"),
        (Status(401), 3, "dragoman keys set openai-compatible"),
        (Status(404), 2, "See: dragoman models list"),
        (Status(429), 6, "Try again"),
        (Status(503), 6, "Try again"),
        (Cut(share=0.6), 6, "Check the network"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_exit_code_shows_how_it_ended(reply: object, code: int, words: str, around: Surroundings) -> None:
    around.set(DRAGOMAN_RETRY_MAX_ATTEMPTS="1")
    assert around.ask([reply], "Hello.").ended(code, words)


def test_a_turn_without_an_answer_ends_in_words(around: Surroundings) -> None:
    assert around.ask(["Well.", ""], "Hello.").code == 0
    with around.talking(["", "", Reply(""), "", "Here."]):
        done = around.here("Hello?")
        assert done.ended(7, "The model gave no answer: its reply was empty, twice in a row.")
        assert (done.out, done.err.count("gave no answer")) == ("", 1)
        said = around.here("-c", "Hello?", "--json").json
        assert (said["text"], said["ending"], said["stop_reason"], said["exit_code"]) == ("", "no_answer", "end", 7)
        assert around.here("-c", "Hello?").out == "Here.\n"


def test_calls_that_were_cut_off_do_not_run(around: Surroundings) -> None:
    cut = [
        Reply(ToolCall(f"c{number}", "calculator", '{"expression": "1+1"}'), stop_reason=StopReason.MAX_TOKENS)
        for number in range(2)
    ]
    with around.talking([*cut, "Two."]):
        done = around.here("Add.", "-T", "calculator")
        assert (done.code, done.err.count("calculator failed: This call was not run")) == (5, 2)
        assert done.err.count("cut off at the token limit") == 1
        assert around.here("-c", "-T", "calculator").ended(2, "there is nothing to continue")
        assert around.here("-c", "Go on.", "-T", "calculator").out == "Two.\n"


def test_the_chat_says_what_is_wrong_with_an_answer_too(around: Surroundings) -> None:
    with around.talking([Reply("Half an ans", stop_reason=StopReason.MAX_TOKENS), "", ""]):
        done = around.here("chat", stdin="Hello.\nAnd?\n")
    assert done.err.count("cut off at the token limit") == 1
    assert done.err.count("gave no answer") == 1


def test_a_conversation_at_its_step_limit_can_be_continued(around: Surroundings) -> None:
    around.set(DRAGOMAN_MAX_STEPS="2")
    looping = [calling("calculator", {"expression": f"{number}+1"}, id=f"c{number}") for number in range(2)]
    with around.talking([*looping, "Done."]):
        done = around.here("Count.", "-T", "calculator")
        assert done.code == 5
        assert "max iterations (2) reached. Continue with: dragoman -c" in done.err
        assert around.here("-c", "-T", "calculator").out == "Done.\n"


def test_the_step_limit_applies_across_approvals(around: Surroundings) -> None:
    around.set(DRAGOMAN_MAX_STEPS="3")
    (around.work / "touching.py").write_text(
        "from dragoman import tool\n\n@tool(requires_approval=True)\ndef touch(name: str) -> str:\n    return name\n"
    )
    with around.talking(lambda _: calling("touch", {"name": "x"})) as simulator:
        done = around.here("Go.", "-T", "touching.py", "--approve", "auto")
        assert done.code == 5
        assert "dragoman: 1 call waits for your approval; max iterations (3) reached." in done.err
        assert len(simulator.requests) == 3


# --- models -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("-m opnai:gpt-5", "Did you mean openai"),
        ("-m gptt-5", "Did you mean gpt-5?"),
        ("-m anthropic:", "there is nothing after"),
        ("-m xyzzy", "does not say which provider has the model. Write provider:model; the providers are anthropic, "),
        ("-m xyzzy:x", "cerebras, claude-local, "),
        ("-m openai-compatible:x", "Pass --base-url https://…/v1"),
        ("-m openai:gpt-5 --base-url http://example.com", "Write https:// before the host name.\n"),
        ("-o temprature 1", "Did you mean temperature?"),
        ("-o temperature hot", "does not fit (-o temperature): expected float"),
        ("-a ~nobody-of-this-name/file", "There is no user '~nobody-of-this-name' on this machine"),
    ],
)
def test_unknown_names_get_suggestions(arguments: str, words: str, around: Surroundings) -> None:
    assert around.here("Hello.", *arguments.split()).ended(2, words)


def test_a_model_unknown_to_the_provider_gets_suggestions(around: Surroundings) -> None:
    around.configure('[keys.anthropic]\nenv = "KEY"\nhosts = ["127.0.0.1"]\n')
    with Simulator(Status(404, "model: claude-sonet-4-5")) as simulator:
        around.set(KEY="sk-not-a-real-key-0123456789", DRAGOMAN_BASE_URL=simulator.base_url("anthropic"))
        done = around.here("Hello.", "-m", "anthropic:claude-sonet-4-5")
    assert done.ended(2, "Did you mean anthropic:claude-sonnet-4-5")
    assert "sk-not" not in done.err


def test_a_missing_key_explains_how_to_store_one(around: Surroundings) -> None:
    ways = ("dragoman keys set openai", "OPENAI_API_KEY", "local")
    assert around.here("Hello.", "-m", "openai:gpt-5").ended(3, "There is no key for openai.", *ways)


@pytest.mark.parametrize(("variable", "model"), [("ANTHROPIC_API_KEY", "anthropic:"), ("GEMINI_API_KEY", "gemini:")])
def test_without_a_configured_model_the_first_provider_with_a_key_answers(
    variable: str, model: str, around: Surroundings
) -> None:
    around.set(**{variable: "not-a-real-key-0123456789"})
    assert f"the model is {model}" in around.here("doctor", "--offline").out


def test_secrets_are_never_shown(around: Surroundings) -> None:
    key = "sk-not-a-real-key-0123456789"
    around.configure(f'[keys.openai-compatible]\nkey = "{key}"\n')
    with around.talking(api_key="another"):
        done = around.here("Hello.", "--debug", "--json")
        shown = around.here("config", "show")
        doctor = around.here("doctor", "--offline")
    assert done.code == 3
    for each in (done, shown, doctor):
        assert key not in each.out + each.err
    assert "contains a key" in done.err  # the file is warned of


def test_an_argument_that_is_not_utf8(around: Surroundings) -> None:
    done = around.ask(None, "caf\udce9 au lait")
    assert (done.code, done.out) == (0, "You said: caf� au lait\n")


def test_a_closed_pipe_ends_it_quietly(around: Surroundings) -> None:
    with around.talking(["word " * 200_000]):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        command = [sys.executable, "-m", "dragoman", "Talk."]
        with started(command, env=around.env, cwd=around.work, **pipes) as child:
            assert child.stdout is not None
            assert child.stderr is not None
            assert child.stdout.read(10) == b"word word "
            child.stdout.close()
            assert child.wait(120) == 141
            assert child.stderr.read() == b""


# --- schemas ----------------------------------------------------------------------------------------------------------


def test_short_form_of_a_schema() -> None:
    assert parse_short_schema("name, age int, tags list, scores list[float], ok bool: whether it is")["properties"] == {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "scores": {"type": "array", "items": {"type": "number"}},
        "ok": {"type": "boolean", "description": "whether it is"},
    }
    assert parse_short_schema("name: first, then last\nage int\n") == {
        "type": "object",
        "properties": {"name": {"type": "string", "description": "first, then last"}, "age": {"type": "integer"}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name,,age", "has an empty field"),
        ("age itn", "Did you mean int?"),
        ("a b c", "is not a field"),
        ("2nd int", "is not a field"),
        ("a, a int", "twice"),
        ("{not json", "is not JSON"),
        ("missing.json", "cannot be read"),
    ],
)
def test_a_wrong_schema_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_schema(text)


def test_schema_from_a_file_or_inline(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    file = tmp_path / "person.schema"
    file.write_text(json.dumps(schema))
    assert read_schema(str(file)) == read_schema(json.dumps(schema)) == schema
    file.write_text("[1]")
    with pytest.raises(UsageError, match="not an object"):
        read_schema(str(file))


@given(st.text())
def test_any_text_is_a_usable_schema_or_a_usage_error(text: str) -> None:
    try:
        found = read_schema(text)
    except UsageError:
        return
    if not text.strip().startswith("{"):
        answer_type(found)
