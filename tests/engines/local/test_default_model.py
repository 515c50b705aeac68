"""The default model: it has to be of some use. `dragoman local pull` fetches it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from dragoman.chat import ChatClient
from dragoman.engines import Engine, engine
from dragoman.engines.local import server
from dragoman.engines.local.models import DEFAULT
from dragoman.providers import ModelOptions
from tests.chat.talking import WAYS
from tests.engines.local.real import needed, quality, real, with_models
from tests.rounds import PROFILE

pytestmark = real


@pytest.fixture(scope="module")
def default() -> Iterator[Engine]:
    needed(DEFAULT)
    with engine("local:") as talker:
        yield talker


def test_it_uses_a_tool(default: Engine) -> None:
    kind, streamed = WAYS["async-stream"]  # the command below is a plain program
    asked: list[str] = []

    def get_weather(city: str) -> str:
        """The weather in a city now."""
        asked.append(city)
        return "-4 degrees, snow"

    talk = kind("local:", [get_weather], streamed=streamed, options=ModelOptions(temperature=0, max_tokens=60))
    try:
        result = talk.chat("What is the weather in Oslo?")
        assert asked == ["Oslo"]
        assert "-4" in result.text
        assert result.spent.tool_calls == 1
    finally:
        talk.close()


def test_it_extracts(default: Engine) -> None:
    class Order(msgspec.Struct):
        product: str
        quantity: int

    with ChatClient(default, options=ModelOptions(temperature=0)) as client:
        order = client.ask("Please send me 12 red lamps.", Order)
        assert order.quantity == 12
        assert "lamp" in order.product.lower()


def test_it_chooses_tools(default: Engine, tmp_path: Path) -> None:
    """A part of what bench/local_quality.py measures, with room for one mistake."""
    made = quality()
    prompts = json.loads((made.HERE / "local_prompts" / "unseen.json").read_text(encoding="utf-8"))
    offer = ["get_stock_price", "switch_light"]
    cases = [{**case, "offer": offer} for case in prompts["cases"] if case.get("call") in (*offer, None)]
    file = tmp_path / "some.json"
    some = cases[1 :: 2 if PROFILE == "thorough" else 4]
    file.write_text(json.dumps({**prompts, "cases": some}), encoding="utf-8")
    missed: list[str] = []
    count, chosen, _ = made.tools(default, file, (), missed.append, longest=24)
    assert count == len(some)
    assert chosen >= count - 1, missed


def test_a_typed_answer_after_a_tool(default: Engine, tmp_path: Path) -> None:
    """The beginning of what bench/local_quality.py measures; the grammar once left no way but to call for ever."""
    made = quality()
    prompts = json.loads((made.HERE / "local_prompts" / "typed.json").read_text(encoding="utf-8"))
    file = tmp_path / "some.json"
    some = prompts["cases"][: 10 if PROFILE == "thorough" else 1]
    file.write_text(json.dumps({**prompts, "cases": some}), encoding="utf-8")
    missed: list[str] = []
    count, ended, right, exact = made.typed(default, file, missed.append, in_one_turn=True)
    assert (count, ended, right, exact) == (len(some),) * 4, missed


def test_no_key_and_a_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    needed(DEFAULT)
    around = with_models(tmp_path, monkeypatch)
    around.set(XDG_CACHE_HOME=str(server._directory().parents[1]))  # where the model of the other tests is loaded
    asked = ["What's 12*7? Use the tool.", "-T", "calculator", "--approve", "auto"]
    command = [sys.executable, "-m", "dragoman", *asked]
    done = subprocess.run(
        command, env=around.env, cwd=around.work, capture_output=True, text=True, check=False, timeout=540
    )
    assert done.returncode == 0, done.stderr
    assert "84" in done.stdout
    first, called, returned = done.stderr.splitlines()
    assert first.startswith(f"dragoman: No key was found, so the local model answers (local:{DEFAULT})")
    assert called.startswith("→ calculator")
    assert returned.startswith("← calculator")
    assert returned.endswith("84")
