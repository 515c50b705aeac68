"""What a terminal may be shown."""

from __future__ import annotations

import io
import logging
import os
import pty
import threading

import pytest
from hypothesis import given, strategies as st

from dragoman.cli.terminal import Terminal, escape_controls, shorten, to_line
from tests.cli.running import Surroundings, Tty


@given(st.text(alphabet=st.characters(exclude_categories=["C", "Z"])))
def test_printable_text_is_unchanged(text: str) -> None:
    assert escape_controls(text) == text


@given(st.text(), st.integers(1, 50))
def test_control_characters_are_escaped_and_shortened_text_fits(text: str, width: int) -> None:
    assert all(letter.isprintable() or letter in "\n\t\u200d" for letter in escape_controls(text))
    assert len(shorten(text, width)) <= width
    assert len(to_line(text).splitlines()) <= 1


def test_answers_are_escaped_on_a_terminal_but_not_in_a_pipe() -> None:
    pipe, tty = io.StringIO(), Tty()
    Terminal(stdout=pipe, stderr=io.StringIO(), environ={}).answer("a\x1b[2Jb\r\n")
    Terminal(stdout=tty, stderr=io.StringIO(), environ={}).answer("a\x1b[2Jb\r\n")
    assert pipe.getvalue() == "a\x1b[2Jb\r\n"
    assert tty.getvalue() == "a\\u001b[2Jb\n"


@pytest.mark.parametrize(
    ("environ", "stream", "coloured"),
    [
        ({}, Tty, True),
        ({"NO_COLOR": "1"}, Tty, False),
        ({"NO_COLOR": ""}, Tty, True),
        ({"TERM": "dumb"}, Tty, False),
        ({}, io.StringIO, False),
    ],
)
def test_colours_are_used_only_if_wanted(environ: dict[str, str], stream: type, coloured: bool) -> None:
    err = stream()
    Terminal(stdout=io.StringIO(), stderr=err, environ=environ).say("Careful.", "red")
    assert ("\x1b[31m" in err.getvalue()) is coloured


def test_a_note_starts_a_new_line_on_a_terminal_only() -> None:
    for out, expected in ((Tty(), "Let me see\n"), (io.StringIO(), "Let me see")):
        terminal = Terminal(stdout=out, stderr=io.StringIO(), environ={})
        terminal.answer("Let me see")
        terminal.note("→ calculator")
        assert out.getvalue() == expected


def test_long_notes_are_wrapped_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Terminal, "width", 40)
    text = "dragoman: " + "incomprehensible " * 20 + "x" * 60
    for err in (Tty(), io.StringIO()):
        Terminal(stdout=io.StringIO(), stderr=err, environ={"NO_COLOR": "1"}).note(text)
        lines = err.getvalue().splitlines()
        assert " ".join(lines).split() == text.split(), "no word is broken"
        assert [len(line) > 40 for line in lines[:-1]] == [False] * (len(lines) - 1)
        assert (len(lines) > 1) is isinstance(err, Tty)


def test_a_status_is_wiped_by_other_output() -> None:
    out, err = io.StringIO(), Tty()
    terminal = Terminal(stdout=out, stderr=err, environ={"NO_COLOR": "1"})
    terminal.show_status("loading\x1b[2J …")
    terminal.answer("Hello.")
    assert err.getvalue() == "loading\\u001b[2J …\r" + " " * 18 + "\r"
    terminal.say("Careful.")
    assert err.getvalue().endswith("\rCareful.\n")
    plain = io.StringIO()
    Terminal(stdout=out, stderr=plain, environ={}).show_status("loading")
    assert plain.getvalue() == "", "only on a terminal"


def test_log_records_are_escaped(around: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    def log(*_: object) -> int:
        logging.getLogger("dragoman.mcp").warning("server %s", "a\x1b[2J")
        return 0

    monkeypatch.setattr("dragoman.cli.tools._list_skills", log)
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    assert around.here("skills", "list").err == "dragoman: server a\\u001b[2J\n"


def test_an_answer_typed_as_the_question_appears_counts() -> None:
    person, program = pty.openpty()

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            if "Sure?" in text:
                os.write(person, b"yes\n")
            return super().write(text)

    late = threading.Timer(5, os.write, (person, b"late\n"))  # so that whoever lost the answer does not wait for ever
    late.start()
    try:
        with open(program, encoding="utf-8") as keyboard:  # noqa: PTH123 -- a descriptor
            os.write(person, b"before\n")
            assert Terminal(stdin=keyboard, stdout=io.StringIO(), stderr=Screen(), environ={}).ask("Sure? ") == "yes"
    finally:
        late.cancel()
        late.join()
        os.close(person)
