"""The benchmark's own machinery: the server, the workers, the figures, the plots. Not how quick anything is."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import aclosing, closing
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from bench import measure, page, readme, table, targets
from bench.contenders.common import Delivered, functions
from bench.peers import CONTENDERS, FLOOR, OURS, PEERS
from bench.server import PACED_CHUNKS, serving
from bench.wire import ANSWER, CHUNKS, PIECES, STREAMED, TOOL_ANSWER, WIRES

ROOT = Path(__file__).resolve().parent.parent.parent
DIALECTS = list(WIRES)


def _module(name: str) -> Any:
    return import_module(f"bench.contenders.{name}")


# --- the server and those who need nothing but this environment ----------------------------------------------------


@pytest.mark.parametrize("name", [FLOOR, OURS])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_server_and_a_client_of_each_colour_understand_each_other(name: str, dialect: str) -> None:
    plain, on_loop = _module(name).Plain, _module(name).OnLoop

    async def talk(root: str) -> None:
        async with aclosing(on_loop(root, dialect)) as client:
            assert await client.turn() == ANSWER
            assert (await client.stream()).characters == len(STREAMED)
            assert await client.history(7)() == await client.many_tools(functions(3))() == ANSWER
        async with aclosing(on_loop(f"{root}/tools", dialect)) as client:
            assert await client.tool_loop() == TOOL_ANSWER

    with serving() as port:
        root = f"http://127.0.0.1:{port}"
        with closing(plain(root, dialect)) as client:
            assert client.turn() == client.history(7)() == client.many_tools(functions(3))() == ANSWER
            assert client.stream().characters == len(STREAMED)
        with closing(plain(f"{root}/tools", dialect)) as client:
            assert client.tool_loop() == TOOL_ANSWER
        asyncio.run(talk(root))


def test_a_paced_stream_is_complete() -> None:
    async def talk(root: str) -> list[Delivered]:
        async with aclosing(_module(FLOOR).OnLoop(root, "openai_chat")) as client:
            return await asyncio.gather(*[client.stream() for _ in range(5)])

    with serving() as port:
        found = asyncio.run(talk(f"http://127.0.0.1:{port}/paced"))
    assert {each.characters for each in found} == {PACED_CHUNKS * len(PIECES[0])}
    for wire in WIRES.values():
        assert sum(wire.stream.count(piece) for piece in set(wire.pieces)) == CHUNKS


# --- workers ---------------------------------------------------------------------------------------------------------


def _worker(name: str, *commands: dict[str, Any]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.worker", name],
        input="".join(json.dumps(command) + "\n" for command in commands),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_worker_measures_and_says_what_it_cannot_do() -> None:
    with serving() as port:
        place = {"dialect": "openai_chat", "root": f"http://127.0.0.1:{port}"}
        timed = {"do": "measure", "times": 2, **place}
        turn, absent, wrong = _worker(
            FLOOR,
            {"operation": "turn", "colour": "plain", **timed},
            {"operation": "nonsense", "colour": "plain", **timed},
            {"operation": "tool_loop", "colour": "on_loop", **timed},
        )
        streams, tools = _worker(
            OURS,
            {"do": "streams", "count": 3, "colour": "on_loop", **place},
            {"do": "tools", "count": 5, "times": 2, "colour": "on_loop", **place},
        )
    assert min(turn["cpu"], turn["wall"], tools["first"], tools["cpu"]) > 0
    assert absent == {"absent": True}
    assert "error" in wrong, "the server was asked without /tools, so that no tool is called"
    assert streams["p50"] <= streams["p99"]
    assert streams["peak"] >= streams["before"] > 0


def test_every_contender_has_its_module_and_its_list() -> None:
    for name, row in CONTENDERS.items():
        assert (ROOT / "bench" / "contenders" / f"{row.module}.py").exists(), name
        if name in PEERS:
            text = (ROOT / "requirements" / "bench" / f"{name}.txt").read_text(encoding="utf-8")
            pinned = text.replace("\\\n", "").splitlines()[1:]
            assert all("==" in line and "--hash=sha256:" in line for line in pinned), name
            assert any(line.startswith(f"{row.distribution}==") for line in pinned), name


# --- figures ---------------------------------------------------------------------------------------------------------


class _Scripted:
    """A crew that answers from a list."""

    def __init__(self, **answers: list[float | str]) -> None:
        self.names = tuple(answers)
        self._answers = answers
        self.asked: list[str] = []

    def ask(self, name: str, command: Any) -> dict[str, Any]:
        self.asked.append(name)
        answer = self._answers[name].pop(0)
        return {"error": answer} if isinstance(answer, str) else {"cpu": answer, "wall": answer}

    def dismiss(self, name: str) -> None: ...


def test_ratios_are_those_of_each_round() -> None:
    # Two answers for finding out how often; then the rounds. The machine is twice as slow in the second one.
    crew = _Scripted(
        floor=[1, 1, 1.0, 2.0, 1.0], dragoman=[1, 1, 3.0, 6.0, 3.5], openai=[1, 1, 30.0], aisuite=[1, 1, 24.0]
    )
    cells = measure.interleaved(crew, {}, measure.Effort(rounds=3, every=3, budget=1))  # type: ignore[arg-type]
    assert cells["dragoman"]["cpu"] == 3.5
    assert cells["dragoman"]["cpu_to_floor"] == 3.0
    assert cells["openai"]["cpu_to_floor"] == 30.0
    assert cells["openai"]["cpu_to_ours"] == 10.0, "in the round in which both took part"
    assert measure.ratio(cells) == pytest.approx(3.0 / 24), "to the best of them"


def test_who_fails_is_named_and_the_others_go_on() -> None:
    crew = _Scripted(floor=[1, 1, 1, 1], dragoman=["broken"], openai=[1, 1, "later"])
    cells = measure.interleaved(crew, {}, measure.Effort(rounds=2, every=2, budget=1))  # type: ignore[arg-type]
    assert cells["dragoman"] == {"error": "broken"}
    assert cells["openai"] == {"error": "later"}
    assert cells["floor"]["rounds"] == 2
    assert "fails: broken" in table.of("turn", {"openai_chat plain": cells})


def _results() -> dict[str, Any]:
    cells = {
        FLOOR: {"cpu": 1e-5, "wall": 2e-5, "rounds": 3},
        OURS: {"cpu": 3e-5, "wall": 4e-5, "cpu_to_floor": 3.0, "rounds": 3},
        "openai": {"cpu": 2e-3, "wall": 3e-3, "cpu_to_floor": 200.0, "rounds": 1},
        "litellm": {"error": "Oh: no\nmore"},
    }
    section = {
        "cells": {"openai_chat plain": cells},
        "at": "2026-01-01T00:00:00+00:00",
        "load": [[1, 1, 1], [2, 2, 2]],
        "stolen": 0.034,
    }
    about = {"python": "3", "system": "s", "processor": "p", "versions": {"openai": "1.0"}, "missing": {"llm": "no"}}
    return {"about": about, "sections": {"turn": section}}


def test_targets_are_judged() -> None:
    floor, best = targets.verdicts(_results())
    assert (floor.value, floor.limit, floor.reached) == (3.0, 3.5, True)
    assert best.value == pytest.approx(0.015)
    assert not best._replace(value=0.11).reached


def test_the_page_and_its_plots_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "results.md")
    monkeypatch.setattr(page, "IMAGES", tmp_path / "images")
    readme_file = tmp_path / "README.md"
    readme_file.write_text(f"before\n{readme.BEGIN}old\n{readme.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(readme, "PLACES", (readme_file,))
    page.write(_results())
    compared = readme_file.read_text(encoding="utf-8")
    assert compared.startswith(f"before\n{readme.BEGIN}|")
    assert compared.endswith(f"|\n{readme.END}\nafter\n")
    assert "**dragoman**" in compared
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "{{" not in text
    assert "| **dragoman** | **30 µs** |" in text
    assert "*not measured*" in text
    assert "****" not in text
    assert "gave 3% to 3% of its processors' time to others" in text
    assert "left out: it could not be installed here" in text
    images = list((tmp_path / "images").glob("*.svg"))
    assert len(images) == len(page.PLOTS)
    for image in images:
        ET.parse(image)
        assert f"images/{image.name}" in text
