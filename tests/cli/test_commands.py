"""Each group's commands."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from msgspec import structs

from dragoman import ChatClient, ScriptedEngine, SqliteStore, agent_tool, tool
from dragoman.cli.history import store_path
from dragoman.conversation import Message, ToolCall, Usage
from dragoman.engines import MODELS
from dragoman.simulator import Reply
from dragoman.stores import snapshot_from_json
from tests.cli.running import Surroundings, calling

KEY = "sk-not-a-real-key-0123456789"

# --- models and tools -------------------------------------------------------------------------------------------------


def test_models_list(around: Surroundings) -> None:
    around.set(ANTHROPIC_API_KEY=KEY)
    done = around.here("models", "list", "claude-sonnet", "--offline")
    assert done.code == 0
    head, *rows = done.out.splitlines()
    assert head.split() == ["model", "key", "tools", "JSON", "thinking", "window", "$", "in/out", "takes"]
    assert any(row.split()[:3] == ["anthropic:claude-sonnet-4-5", "set", "yes"] for row in rows)
    found = around.here("models", "--json", "--offline").json
    assert {"openai:gpt-5", "local:qwen2.5-coder-1.5b"} <= {row["model"] for row in found}
    assert KEY not in done.out


class _Listing(BaseHTTPRequestHandler):
    """A server that says which models it has, in the words of several APIs."""

    keys: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.keys.append(self.headers["authorization"] or self.headers["x-api-key"])
        if self.path.startswith("/gone"):
            self.send_response(302)
            self.send_header("location", "/v1/models")
            self.end_headers()
            return
        found = {"data": [{"id": "qwen3:8b"}, {"id": "a\x1b[2Jb"}, {"object": "list"}]}
        body = json.dumps({"models": [{"name": "models/gemini-x"}]} if "v1beta" in self.path else found).encode()
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("provider", "path", "model", "key"),
    [
        ("openai-compatible", "/v1", "openai-compatible:qwen3:8b", None),
        ("openai", "/v1", "openai:qwen3:8b", f"Bearer {KEY}"),
        ("anthropic", "", "anthropic:qwen3:8b", KEY),
        ("gemini", "", "gemini:gemini-x", None),
    ],
)
def test_servers_are_asked_for_their_models(
    provider: str, path: str, model: str, key: str | None, around: Surroundings
) -> None:
    around.configure(
        f"provider = '{provider}'\n" + f"[keys.{provider}]\nenv = 'KEY'\nhosts = ['127.0.0.1']\n" * (key is not None)
    )
    around.set(KEY=KEY)
    _Listing.keys.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Listing) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        around.set(DRAGOMAN_BASE_URL=f"http://127.0.0.1:{server.server_port}{path}")
        done = around.here("models", "list", model.rsplit(":", maxsplit=1)[-1], "--json")
        assert [row["model"] for row in done.json] == [model], done.err
        assert done.json[0]["from"] == "server"
        assert around.here("models", "list", model, "--offline", "--json").json == []
        assert KEY not in done.out + done.err
        around.set(DRAGOMAN_BASE_URL=f"http://127.0.0.1:{server.server_port}/gone")
        assert around.here("models", "list", model, "--json").json == [], "a redirect is not followed"
        server.shutdown()
    assert _Listing.keys == [key, key]


def test_tools_list_schema_and_check(around: Surroundings) -> None:
    effects = {tool["name"]: tool["effect"] for tool in around.here("tools", "--json").json}
    assert (effects["Bash"], effects["calculator"], effects["send_update"]) == ("changes", "reads", "reads")
    around.configure('[mcp.servers.files]\ncommand = "mcp-files"\n')
    assert "MCP servers of the configuration: files" in around.here("tools", "list").out
    assert [tool["name"] for tool in around.here("tools", "list", "Read", "--json").json] == ["Read"]
    schema = around.here("tools", "schema", "read").json
    assert schema["name"] == "Read"
    assert "file_path" in schema["parameters"]["properties"]
    assert len(around.here("tools", "schema", "toolkit").json) > 5
    assert around.here("tools", "check", "-m", "openai:gpt-5").out.startswith("openai:gpt-5: ")
    assert around.here("tools", "check", "Read", "-m", "openai:gpt-6-astra").code == 1


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_set_list_and_remove(around: Surroundings) -> None:
    done = around.here("keys", "set", "openai", stdin=f"{KEY}\n")
    assert (done.code, done.out) == (0, "")
    assert "…6789" in done.err
    file = around.home / ".config" / "dragoman" / "keys.toml"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = around.here("keys", "list")
    assert "openai    …6789" in listed.out
    assert KEY not in done.err + listed.out
    around.set(GEMINI_API_KEY=KEY)
    assert {row["provider"] for row in around.here("keys", "--json").json} == {"openai", "gemini"}
    assert around.here("keys", "remove", "openai").code == 0
    assert around.here("keys", "remove", "openai").ended(2, "No key is stored for openai.")


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (["set", "openai", KEY], "", "Do not put a key on the command line"),
        (["set", "opnai"], KEY, "Did you mean openai"),
        (["set", "openai"], "", "is not a key"),
        (["set", "openai"], "two words", "is not a key"),
        (["set", "openai", "--store", "keychain"], KEY, "keychain"),
    ],
)
def test_an_invalid_key_is_refused(arguments: list[str], stdin: str, words: str, around: Surroundings) -> None:
    done = around.here("keys", *arguments, stdin=stdin)
    assert done.code == 2
    assert words in done.err
    assert KEY not in done.err
    assert not (around.home / ".config" / "dragoman" / "keys.toml").exists()


# --- history ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def talked(around: Surroundings) -> Surroundings:
    with around.talking():
        around.here("The capital of France?")
        around.here("The capital of Peru?")
    return around


def test_history_list_show_and_search(talked: Surroundings) -> None:
    rows = talked.here("history").out.splitlines()
    assert [row.split()[-1] for row in rows] == ["about", "Peru?", "France?"]
    assert len(talked.here("history", "list", "-n", "1", "--json").json) == 1
    id = rows[2].split()[0]
    shown = talked.here("history", "show", id).out
    assert "## You\n\nThe capital of France?\n\n## Model\n\nYou said: The capital of France?" in shown
    assert "Peru" in talked.here("history", "show").out
    found = talked.here("history", "search", "capital", "fran").out.splitlines()
    assert len(found) == 2
    assert found[1].startswith(id)
    assert talked.here("history", "search").code == 2


def test_usage_by_day_model_and_conversation(around: Surroundings) -> None:
    assert "There are no replies." in around.here("usage").err
    reply = Reply("Paris.", usage=Usage(input=1_000_000, output=0))
    with around.talking([reply] * 3):
        around.here("Capital of France?")
        assert "cost: unknown" in around.here("--usage", "And of Peru?").err
        around.set(DRAGOMAN_PRICES='{"input": 2, "output": 3}')
        assert around.here("--json", "And of Chad?").json["cost"] == 2.0
    for by, rows in (("day", 1), ("model", 1), ("conversation", 3)):
        found = around.here("usage", "--by", by, "--json").json
        assert (len(found["rows"]), found["total"]["replies"], found["total"]["cost"]) == (rows, 3, None)
    assert sorted([row["cost"] or 0 for row in found["rows"]]) == [0, 0, 2.0]
    shown = around.here("usage", "--by", "conversation")
    assert [line.count("unknown") for line in shown.out.splitlines()] == [0, 0, 1, 1, 1]
    assert "█" in shown.out
    assert "known for 1 of 3 replies: $2.00" in shown.err
    assert around.here("usage", "--since", "2999-01-01", "--json").json["rows"] == []
    assert around.here("usage", "--since", "soon").ended(2, "is not a date")
    assert [row["cost"] for row in around.here("history", "list", "--json").json] == [2.0, None, None]


def test_agents_are_in_the_usage_and_not_in_the_history(around: Surroundings) -> None:
    @tool(requires_approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def used(*blocks: ToolCall | str, cost: float) -> Message:
        return structs.replace(Message.assistant(*blocks), usage=Usage(input=9, output=1, charged=cost))

    around.here("history")  # which makes the store
    inner = ScriptedEngine([used("Yes.", cost=0.5), used(ToolCall("p", "pay", "{}"), cost=0.5)])
    calls = [used(ToolCall(id, "clerk", '{"prompt": "x"}'), cost=0.25) for id in ("c1", "c2")]
    with SqliteStore(store_path()) as store:
        client = ChatClient(ScriptedEngine(calls), [agent_tool("clerk", "Pays.", inner, [pay])], store=store)
        client.chat("Go.")
        client.close()
    assert len(around.here("history", "list", "--json").json) == 1
    found = around.here("usage", "--by", "model", "--json").json
    assert {row["model"]: row["cost"] for row in found["rows"]} == {"agent:clerk": 0.5, "scripted:model": 0.5}
    assert found["total"]["cost"] == 1.0


def test_an_unreadable_conversation_makes_the_total_cost_unknown(around: Surroundings) -> None:
    around.set(DRAGOMAN_PRICES='{"input": 2, "output": 3}')
    with around.talking([Reply("Paris.", usage=Usage(input=1_000_000, output=0))] * 2):
        around.here("Capital of France?")
        around.here("And of Peru?")
    found = around.here("usage", "--json").json
    assert (found["total"]["cost"], found["left_out"]) == (4.0, 0)
    with closing(sqlite3.connect(store_path())) as database, database:
        database.execute("UPDATE message SET body = x'00' WHERE root = (SELECT min(root) FROM chain)")
    found = around.here("usage", "--json").json
    assert (found["total"]["replies"], found["total"]["cost"], found["left_out"]) == (1, None, 1)


def test_history_export(talked: Surroundings) -> None:
    kept = snapshot_from_json(talked.here("history", "export", "--format", "json").out.encode())
    assert kept.title == "The capital of Peru?"
    assert talked.here("history", "export", "-o", "talk.md").code == 0
    assert (talked.work / "talk.md").read_text().startswith("# The capital of Peru?")
    assert "cannot be written" in talked.here("history", "export", "-o", "/nowhere/at/all.md").err


def test_history_delete(talked: Surroundings) -> None:
    id = talked.here("history").out.splitlines()[1].split()[0]
    assert talked.here("history", "delete").code == 2
    assert talked.here("history", "delete", id).ended(2, "Use --yes.")
    assert "1 deleted." in talked.here("history", "delete", id, "--yes").err
    assert "Peru" not in talked.here("history").out
    assert "1 deleted." in talked.here("history", "delete", "--all", "-y").err
    assert "There are no conversations." in talked.here("history").err


# --- configuration, skills, completion --------------------------------------------------------------------------------


def test_config_show_and_path(around: Surroundings) -> None:
    around.configure('model = "anthropic:claude-haiku-4-5"\n')
    done = around.here("config", "show", "--set")
    assert '"claude-haiku-4-5"' in done.out
    assert "config.toml, line 1" in done.out
    rows = around.here("config", "--json").json
    assert any(row["field"] == "max_steps" and row["origin"] == "default" for row in rows)
    paths = around.here("config", "path").out
    assert str(around.home / ".config" / "dragoman" / "config.toml") in paths
    assert "conversations.db" in paths


def test_a_wrong_table_in_the_configuration_is_reported_with_its_line(around: Surroundings) -> None:
    around.configure("\n[cli]\nlgo = true\n")
    assert around.ask(None, "Hello.").ended(2, "config.toml", "[cli] does not fit")


def make_skill(place: Path) -> Path:
    folder = place / ".agents" / "skills" / "greeting"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: greeting\ndescription: How to greet.\n---\nSay hello.\n")
    return folder


def test_skills_list_and_validate(around: Surroundings) -> None:
    assert "There are no skills." in around.here("skills").err
    folder = make_skill(around.home)
    assert "greeting" in around.here("skills", "list").out
    assert around.here("skills", "--json").json[0]["name"] == "greeting"
    assert around.here("skills", "validate", str(folder)).out == f"{folder}: valid\n"
    (folder / "SKILL.md").write_text("---\nname: Wrong Name\n---\n")
    wrong = around.here("skills", "validate", str(folder))
    assert wrong.code == 1
    assert "invalid" in wrong.out


def test_project_skills_need_the_users_consent(around: Surroundings) -> None:
    make_skill(around.work)
    assert "There are no skills." in around.here("skills").err
    around.configure("[skills]\nproject = true\n")
    assert "greeting" in around.here("skills").out
    with around.talking() as simulator:
        assert around.here("Hi.", "-T", "Skill").code == 0
        assert "greeting" in simulator.requests[0].body["messages"][0]["content"]


def test_simulate_runs_the_simulator(around: Surroundings, capsys: pytest.CaptureFixture[str]) -> None:
    assert "cut_close" in around.here("simulate", "--list-faults").out
    assert around.here("simulate", "--xyzzy").code == 2


# --- doctor -----------------------------------------------------------------------------------------------------------


def test_doctor_reports_that_everything_is_fine(around: Surroundings) -> None:
    done = around.ask(None, "doctor")
    assert done.code == 0, done.out
    for about in ("version", "configuration", "key", "network", "store"):
        assert f"ok    {about}: " in done.out


def test_doctor_reports_problems_and_fixes(around: Surroundings) -> None:
    done = around.here("doctor", "--offline", "-m", "openai:gpt-5")
    assert done.code == 1
    assert "FAIL  key: There is no key for openai." in done.out
    assert "dragoman keys set openai" in done.out
    around.configure("nonsense = 1\n")
    done = around.here("doctor", "--offline", "--json")
    assert done.code == 1
    wrong = [finding for finding in done.json if finding["state"] == "wrong"]
    assert "nonsense" in wrong[0]["text"]


@pytest.mark.skipif(os.geteuid() == 0, reason="needs a directory that cannot be written")
def test_doctor_reports_an_unwritable_store(around: Surroundings) -> None:
    place = around.home / ".local" / "share"
    place.mkdir(parents=True)
    place.chmod(0o500)
    assert "FAIL  store" in around.here("doctor", "--offline").out


# --- the model on this machine ----------------------------------------------------------------------------------------


def test_local_list_and_remove(around: Surroundings) -> None:
    around.set(DRAGOMAN_MODEL_DIR=str(around.home / "models"))
    assert "local:qwen2.5-coder-1.5b (default)" in around.here("local").out
    assert [row["present"] for row in around.here("local", "list", "--json").json] == [False] * len(MODELS)
    assert "It was not on this machine." in around.here("local", "remove", "local:smollm2-135m").err
    wrong = around.here("local", "remove", "smollm")
    assert wrong.code != 0
    assert "smollm2-135m" in wrong.err


# --- mcp --------------------------------------------------------------------------------------------------------------

SERVER = """
from dragoman.conversation import Media, Text
from dragoman.mcp import serve_stdio


def add(a: int, b: int) -> int:
    \"\"\"The sum.\"\"\"
    return a + b


def picture() -> list[Media | Text]:
    \"\"\"A picture.\"\"\"
    return [Text("Here."), Media.from_bytes(b"\\x89PNG\\r\\n\\x1a\\n" + bytes(20), "image/png")]


serve_stdio([add, picture])
"""


@pytest.mark.slow
def test_mcp_list_call_and_use_as_a_tool(around: Surroundings) -> None:
    server = around.work / "server.py"
    server.write_text(SERVER)
    around.configure(
        f"[mcp.servers.maths]\ncommand = {json.dumps(sys.executable)}\nargs = [{json.dumps(str(server))}]\n"
    )
    assert "maths_add" in around.here("mcp", "list").out
    assert "Did you mean" in around.here("mcp", "call", "maths", "ad").err
    assert "Did you mean maths?" in around.here("mcp", "list", "math").err
    (around.work / "picture-1.png").touch()
    drawn = around.here("mcp", "call", "maths", "picture")
    assert (drawn.code, drawn.out) == (0, "Here.\n")
    assert "image/png, written to picture-2.png (28 bytes)" in drawn.err
    assert (around.work / "picture-2.png").read_bytes().startswith(b"\x89PNG")
    looked = around.here("doctor").out
    assert "ok    MCP server maths: 2 tools" in looked
    done = around.ask(
        [calling("maths_add", {"a": 2, "b": 3}), "It is 5."], "Add.", "-T", "maths", "--approve", "auto", "--json"
    )
    assert done.json["tool_calls"][0]["result"] == "5"


@pytest.mark.slow
def test_mcp_list_reports_failing_servers(around: Surroundings) -> None:
    around.configure(
        f'[mcp.servers.dead]\ncommand = {json.dumps(sys.executable)}\nargs = ["-c", "raise SystemExit(3)"]\n'
    )
    done = around.here("mcp", "list")
    assert done.code == 1
    assert "dead" in done.err
    assert "FAIL  MCP server dead: " in around.ask(None, "doctor").out


def test_mcp_without_servers(around: Surroundings) -> None:
    assert "has no MCP servers" in around.here("mcp", "list").err


@pytest.mark.slow
@pytest.mark.parametrize(("approve", "hint"), [("ask", "--approve auto"), ("deny", "allow it in [permissions]")])
def test_mcp_serve_refuses_calls_that_nobody_can_approve(around: Surroundings, approve: str, hint: str) -> None:
    command = f"command = {json.dumps(sys.executable)}\n"
    arguments = ["-m", "dragoman", "mcp", "serve", "-T", "calculator", "-T", "Bash", "--approve", approve]
    serve = f"args = {json.dumps(arguments)}\n"
    home = f"[mcp.servers.own.env]\nHOME = {json.dumps(str(around.home))}\n"
    around.configure(f"[mcp.servers.own]\n{command}{serve}cwd = {json.dumps(str(around.work))}\n{home}")
    assert around.here("mcp", "call", "own", "calculator", '{"expression": "6*7"}').out == "42\n"
    refused = around.here("mcp", "call", "own", "Bash", '{"command": "touch made"}')
    assert refused.ended(1, hint)
    assert refused.out == ""
    assert not (around.work / "made").exists()
