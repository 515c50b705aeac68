"""The page docs/first-ten-minutes.md, made from real runs of the command in a pseudo-terminal.

    python3 -m devtools.first_ten_minutes docs/first-ten-minutes.md

Each command runs with a home directory of its own. The models are scripted, so that the page can be made again and
compared: a server on this machine stands for the provider, and a stand-in for the model on this machine.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pexpect

from devtools.terminal_screen import Screen
from dragoman.conversation import ToolCall
from dragoman.engines import MODELS
from dragoman.simulator import Reply, Request, Simulator, Status

__all__ = ["main", "make_page", "prepare"]

WIDTH = 100
SECONDS = 60.0
_SEQUENCES = r"(?:\x1b\[[0-?]*[ -/]*[@-~])*"
"""Colours and the like, which may stand between any two letters."""
KEY = "sk-not-a-real-key-0123456789"

# Stands in for the model on this machine, which takes a gigabyte and a while to load.
_LOCAL = """
import time

from dragoman.engines import ProviderFactory, ScriptedEngine, register_provider


class Local(ProviderFactory):
    def engine(self, model, **options):
        return ScriptedEngine([lambda _: time.sleep(1) or "Paris."], name=f"local:{model}")


register_provider("local", Local(), replace=True)
"""


@dataclass(frozen=True)
class Run:
    """A command, and what a person types into it: each text is typed when the one before it can be read."""

    command: str
    typed: Sequence[tuple[str, str]] = ()
    code: int = 0
    env: Mapping[str, str] = field(default_factory=dict[str, str])


_PROVIDER = {"DRAGOMAN_BASE_URL": "{url}"}

PAGE: tuple[str | Run, ...] = (
    """\
# The first ten minutes

A script made this page (`python3 -m devtools.first_ten_minutes`): it ran every command below, but for the installation,
in a real terminal, and wrote down what could be seen. Only the models are scripted, so that a test can make the page
again and compare.

## Install

```text
$ pip install 'dragoman[cli]'
```

`dragoman[cli,local]` brings a model that runs on this machine and needs no key; `dragoman` alone is the library, with a
plainer command line.

## Without a key

Ask. Where there is no key, one line says so, and the model on this machine answers.""",
    Run('dragoman "What is the capital of France?"'),
    """\
## With a key

A key is typed where nobody sees it. It goes into the system's keychain or, where there is none, into a file that only
you can read.""",
    Run("dragoman keys set openai", [("Key for openai: ", f"{KEY}\r")]),
    Run("dragoman keys list"),
    "Now the provider's model answers. On a terminal its Markdown is rendered; in a pipe it is the plain text.",
    Run('dragoman "Name three French cities, as a list"', env=_PROVIDER),
    Run('dragoman -c "Which is the largest? One word" | tr a-z A-Z', env=_PROVIDER),
    Run('dragoman --schema "name, age int" "Ada Lovelace died at 36."', env=_PROVIDER),
    """\
## Tools

Tools that only read are used without a question. Everything else is asked about, with all of its arguments.""",
    Run('dragoman -T calculator "What is 12.5 % of 3,440?"', env=_PROVIDER),
    Run('dragoman -T Bash "Make a directory for my notes"', [("exactly this? ", "y\r")], env=_PROVIDER),
    """\
## A chat

`/help` says what else can be typed. On leaving, it says how to go on.""",
    Run(
        "dragoman chat",
        [
            ("Ctrl-D to leave", ""),
            (">", "What is a dragoman?\r"),
            ("shared no language.", ""),
            (">", "/usage\r"),
            ("tokens: ", ""),
            (">", "\x04"),
        ],
        env=_PROVIDER,
    ),
    """\
## What was said before

Everything is kept on this machine, step by step, unless you say `-n`.""",
    Run("dragoman history list"),
    Run("dragoman history search interpreter"),
    """\
## When something is wrong

A line says what happened and what to do next; the exit code says which kind of trouble it was.""",
    Run("dragoman modles", code=2),
    Run('dragoman --modle gpt-5 "Hello"', code=2),
    Run('dragoman -m opnai:gpt-5 "Hello"', code=2),
    Run('dragoman -o temprature 0.2 "Hello"', code=2),
    Run('dragoman -T calculatr "What is 6*7?"', code=2),
    Run('dragoman --schema "name,,age" "Invent a person"', code=2),
    Run('dragoman -a missing.png "What is this?"', code=2),
    Run('dragoman -m anthropic:claude-sonnet-4-5 "Hello"', code=3),
    Run('dragoman "Is my key right?"', code=3, env=_PROVIDER),
    Run('dragoman "Are you there?"', code=6, env={"DRAGOMAN_BASE_URL": "http://127.0.0.1:9/v1"}),
    Run('dragoman -m openai:gpt-3.5-turbo -a picture.png "What is this?"', env=_PROVIDER),
    Run('dragoman -m openai:gpt-3.5-turbo -a picture.png --strict "What is this?"', code=1, env=_PROVIDER),
    """\
More: the [command line](cli.md), its [configuration](configuration.md), and the [tutorial](tutorial.md) for the
library.""",
)


def make_page() -> str:
    """Run everything, and give the page."""
    parts: list[str] = []
    with tempfile.TemporaryDirectory() as place, Simulator(_answer) as simulator:
        home = Path(place).resolve()
        environ = prepare(home)
        for part in PAGE:
            if isinstance(part, str):
                parts.append(part)
                continue
            given = {name: value.format(url=simulator.base_url("openai")) for name, value in part.env.items()}
            seen = _record(part, {**environ, **given}, home / "work")
            parts.append("\n".join(["```text", f"$ {part.command}", *_normalise(seen, home), "```"]))
    return "\n\n".join(parts) + "\n"


def _answer(request: Request) -> Reply | Status | str:
    """What the scripted provider says."""
    said = request.last_user_text
    if "response_format" in request.body:
        return '{"name": "Ada Lovelace", "age": 36}'
    if b'"role":"tool"' in request.raw:
        return "It is 430." if "12.5" in said else "There is a directory `notes` now."
    answers: dict[str, Reply | Status | str] = {
        "three French": "Three of them are:\n\n- **Paris**\n- Lyon\n- Marseille",
        "largest": "Paris",
        "12.5": Reply(ToolCall("c1", "calculator", '{"expression": "3440 * 12.5 / 100"}')),
        "notes": Reply(ToolCall("c2", "Bash", '{"command": "mkdir notes"}')),
        "dragoman": "An *interpreter* between courts that shared no language.",
        "key right": Status(401, "Incorrect API key provided."),
        "What is this": "I cannot see a picture. What is on it?",
    }
    return next((answer for words, answer in answers.items() if words in said), "I do not know.")


def prepare(home: Path) -> dict[str, str]:
    """A home directory, a model's stand-in, and the environment of the commands."""
    site, models, work, settings = home / "site", home / "models", home / "work", home / ".config" / "dragoman"
    for directory in (site, models, work, settings):
        directory.mkdir(parents=True)
    (site / "sitecustomize.py").write_text(_LOCAL)
    (site / "xllamacpp.py").write_text("")
    for model in MODELS.values():
        with (models / model.file).open("wb") as file:
            file.truncate(model.size)  # a hole: it takes no space, and nobody looks inside
    # The key may go to the server that stands for the provider; and nobody waits for a server that is not there.
    (settings / "config.toml").write_text('[keys.openai]\nhosts = ["127.0.0.1"]\n\n[retry]\nmax_attempts = 1\n')
    (work / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(20))
    bin_directory = str(Path(sys.executable).parent)
    return {
        "HOME": str(home),
        "PATH": os.pathsep.join([bin_directory, os.environ.get("PATH", os.defpath)]),
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "DRAGOMAN_MODEL_DIR": str(models),
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "LANG": "C.UTF-8",
        "TERM": "xterm-256color",
    }


@contextmanager
def _started(run: Run, environ: Mapping[str, str], directory: Path, seen: io.StringIO) -> Generator[pexpect.spawn[str]]:
    child: pexpect.spawn[str] = pexpect.spawn(
        "/bin/sh",
        ["-c", run.command],
        env=dict(environ),
        cwd=str(directory),
        encoding="utf-8",
        dimensions=(40, WIDTH),
        timeout=SECONDS,
    )
    child.logfile_read = seen
    child.delaybeforesend = 0.1
    try:
        yield child
    finally:
        child.close(force=True)


def _record(run: Run, environ: Mapping[str, str], directory: Path) -> list[str]:
    seen = io.StringIO()
    with _started(run, environ, directory, seen) as child:
        for expected, typed in run.typed:
            child.expect(_SEQUENCES.join([re.escape(letter) for letter in expected]))
            if typed:
                child.send(typed)
        child.expect(pexpect.EOF)
        child.close()
        if child.exitstatus != run.code:
            message = f"{run.command} ended with {child.exitstatus}:\n{seen.getvalue()}"
            raise RuntimeError(message)
    screen = Screen(WIDTH)
    screen.write(seen.getvalue())
    return screen.lines()


def _normalise(lines: Sequence[str], home: Path) -> list[str]:
    """What differs from run to run, made the same."""
    text = "\n".join(lines).replace(str(home), "~")
    text = re.sub(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b", "2026-01-01 12:00", text)
    text = re.sub(r"(?<=← )(\w+) \d+\.\d s", r"\1 0.0 s", text)
    text = re.sub(r"127\.0\.0\.1:(?!9\b)\d+", "127.0.0.1:8000", text)
    text = re.sub(r"dragoman \d+\.\d+\.\S+ ·", "dragoman 1.0 ·", text)
    ids: dict[str, str] = {}
    for found in re.findall(r"(?:^|--cid )([0-9a-f]{8})\b", text, re.MULTILINE):
        ids.setdefault(found, f"{len(ids) + 1}" * 8)
        text = text.replace(found, ids[found])
    return text.split("\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="python3 -m devtools.first_ten_minutes", description="Write the page.")
    parser.add_argument("file", type=Path, help="where it goes")
    given = parser.parse_args(argv)
    given.file.write_text(make_page(), encoding="utf-8")
    print(given.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
