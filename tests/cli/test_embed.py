"""`dragoman embed`: lines and files to vectors, as JSON lines or an array."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dragoman.simulator import Request, Status
from dragoman.simulator.embeddings import vector_of
from tests.cli.running import MODEL, Surroundings

EMBED = ("embed", "-m", MODEL, "--dimensions", "4")


def expected(*texts: str) -> np.ndarray:
    return np.array([vector_of(text, 4) for text in texts], dtype="f4")


def test_lines_become_json_lines_and_files_an_array(around: Surroundings) -> None:
    (around.work / "a.txt").write_text("one\n\ntwo\n")
    (around.work / "b.txt").write_text("three\nfour\n")
    with around.talking():
        done = around.here(*EMBED, stdin="schön\nwords\n")
        assert [line["text"] for line in done.lines] == ["schön", "words"]
        assert np.array_equal(
            np.array([line["embedding"] for line in done.lines], dtype="f4"), expected("schön", "words")
        )
        assert around.here(*EMBED, "a.txt", "b.txt", "-o", "lines.npy").code == 0
        assert (
            around.here(*EMBED, "--whole", "a.txt", "b.txt", "-o", "whole.npy", "--task", "query").err.count("\n") == 2
        )
    assert np.array_equal(np.load(around.work / "lines.npy"), expected("one", "two", "three", "four"))
    assert np.array_equal(np.load(around.work / "whole.npy"), expected("one\n\ntwo\n", "three\nfour\n"))


def test_what_was_written_before_a_failure_is_gone_on_with(
    around: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.cli.embed._CHUNK", 2)

    def script(request: Request) -> str | Status:
        return Status(401) if request.number == 2 else ""

    texts = "1\n2\n3\n4\n5\n"
    with around.talking(script) as simulator:
        assert around.here(*EMBED, "-o", "out.jsonl", stdin=texts).ended(3)
        with (around.work / "out.jsonl").open("a") as file:
            file.write('{"text": "cut o')
        assert around.here(*EMBED, "-o", "out.jsonl", "--resume", stdin=texts).code == 0
        assert len(simulator.requests) == 3 + 1
        assert around.here(*EMBED, "-o", "gone.npy", stdin="6\n").code == 0
        simulator.play(lambda _request: Status(401))
        assert around.here(*EMBED, "-o", "never.npy", stdin="6\n").ended(3)
    lines = [json.loads(line) for line in (around.work / "out.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == ["1", "2", "3", "4", "5"]
    assert sorted(path.name for path in around.work.iterdir()) == ["gone.npy", "out.jsonl"]


@pytest.mark.parametrize(
    ("words", "stdin", "code", "says"),
    [
        (("-m", MODEL), "", 2, "There are no texts"),
        (("-m", MODEL, "--task", "documents"), "a", 2, "Did you mean document"),
        (("-m", MODEL, "--resume"), "a", 2, "can be resumed"),
        (("-m", MODEL, "absent.txt"), "", 1, "absent.txt"),
        (("-m", "anthropic:claude-sonnet-4-5"), "a", 2, "has no models that embed texts"),
    ],
)
def test_what_is_wrong_is_one_line(
    around: Surroundings, words: tuple[str, ...], stdin: str, code: int, says: str
) -> None:
    around.set(ANTHROPIC_API_KEY="sk-any-0123456789012345")
    with around.talking():
        around.set(DRAGOMAN_BASE_URL="http://127.0.0.1:1/v1") if MODEL in words else around.set(DRAGOMAN_BASE_URL="")
        assert around.here("embed", *words, stdin=stdin).ended(code, says)
