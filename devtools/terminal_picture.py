"""The picture of a terminal in the README, made from a real run.

    python3 -m devtools.terminal_picture docs/images/terminal.svg

Each command below runs in a pseudo-terminal, with data and configuration of its own; what it writes, colours
included, becomes an SVG that loads nothing. The model is the one on this machine unless --model names another; with
--base-url it may be any server.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pexpect
from rich.console import Console
from rich.text import Text

from devtools.terminal_screen import Screen

__all__ = ["main", "picture", "recorded"]

COMMANDS = (
    ("What is the capital of France? One word.",),
    ("-T", "calculator", "What is 17 * 23?"),
    ("--schema", "name, age int", "Ada is 36 years old."),
)
WIDTH = 84
SECONDS = 600.0
_KEPT = ("HOME", "PATH", "LANG", "LC_ALL", "PYTHONPATH", "VIRTUAL_ENV", "DRAGOMAN_MODEL_DIR", "XDG_CACHE_HOME")

# As rich draws it, without the fonts that it would fetch.
_FORMAT = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: "Fira Code", "DejaVu Sans Mono", Menlo, Consolas, monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: system-ui, sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def recorded(arguments: Sequence[str], environ: Mapping[str, str], directory: Path) -> str:
    """What the command writes to a terminal."""
    seen = io.StringIO()
    child: pexpect.spawn[str] = pexpect.spawn(
        sys.executable,
        ["-m", "dragoman", *arguments],
        env={**environ, "TERM": "xterm-256color"},
        cwd=str(directory),
        encoding="utf-8",
        dimensions=(60, WIDTH),
        timeout=SECONDS,
    )
    child.logfile_read = seen
    child.expect(pexpect.EOF)
    child.close()
    if child.exitstatus != 0:
        message = f"{arguments} ended with {child.exitstatus}:\n{seen.getvalue()}"
        raise RuntimeError(message)
    screen = Screen(WIDTH)
    screen.write(seen.getvalue())
    return "\n".join(screen.lines(colours=True))


def picture(runs: Sequence[tuple[str, str]]) -> str:
    """Commands and what they wrote, as SVG."""
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    for command, output in runs:
        console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        console.print(Text.from_ansi(output.rstrip("\n")))
        console.print()
    return console.export_svg(title="dragoman", code_format=_FORMAT, unique_id="terminal")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the picture."""
    parser = argparse.ArgumentParser(prog="python3 -m devtools.terminal_picture", description="Make the picture.")
    parser.add_argument("file", type=Path, help="where it goes")
    parser.add_argument("--model", default="local:qwen2.5-coder-1.5b", help="who answers")
    parser.add_argument("--base-url", default="", help="where")
    given = parser.parse_args(argv)
    environ = {name: value for name, value in os.environ.items() if name in _KEPT}
    environ |= {"DRAGOMAN_MODEL": given.model, "DRAGOMAN_BASE_URL": given.base_url}
    runs: list[tuple[str, str]] = []
    with tempfile.TemporaryDirectory() as place:
        environ |= dict.fromkeys(("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"), place)
        for arguments in COMMANDS:
            words = [word if word.startswith("-") or " " not in word else f'"{word}"' for word in arguments]
            runs.append((f"dragoman {' '.join(words)}", recorded(arguments, environ, Path(place))))
    given.file.parent.mkdir(parents=True, exist_ok=True)
    given.file.write_text(picture(runs), encoding="utf-8")
    print(f"{given.file}: {given.file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
