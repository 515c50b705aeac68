"""An environment for each contender below .dev/bench, made from its pinned list with pip, kept while the list stays.

python bench/environments.py            make all that are missing
python bench/environments.py pin        write the lists in requirements/bench anew, with the newest releases
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.peers import CONTENDERS, OURS
from devtools.environments import exclusive
from devtools.places import DEV, REQUIREMENTS, SOURCES
from devtools.processes import variables

__all__ = ["directory", "installed", "make", "python"]

EXTRA = {
    "httpx": ("httpx",),
    "pydantic-ai-temporal": ("pydantic-ai-slim[openai,temporal]",),
    "tracing": (
        "pydantic-ai-slim[openai]",
        "opentelemetry-instrumentation-openai-v2",
        "opentelemetry-sdk",
        "httpx",
        "opentelemetry-util-genai==0.4b0",
    ),
}
"""Environments that nobody competes in."""
HEADER = "# Pinned for the benchmark by `python bench/environments.py pin`; do not edit.\n"
NOT_COUNTED = ("pip", "setuptools", "wheel")
"""What venv itself brings along."""


class NotInstalledError(Exception):
    """pip or uv could not do it; the message has its last words."""


def directory(name: str) -> Path:
    return DEV / "bench" / name


def python(name: str) -> Path:
    return directory(name) / "bin" / "python"


def _list(name: str) -> Path:
    return REQUIREMENTS / "core.lock" if name == OURS else REQUIREMENTS / "bench" / f"{name}.txt"


def make(name: str) -> Path:
    """Make the environment unless it is there and its list is the same; its Python is returned."""
    (DEV / "bench").mkdir(parents=True, exist_ok=True)
    with exclusive(f"bench/{name}"):
        stamp = directory(name) / "made-from.json"
        wanted = {
            "python": f"{platform.python_version()} {sys.base_prefix}",
            "list": hashlib.sha256(_list(name).read_bytes()).hexdigest(),
        }
        if stamp.exists() and json.loads(stamp.read_text(encoding="utf-8")) == wanted:
            return python(name)
        print(f"· making .dev/bench/{name}", file=sys.stderr, flush=True)
        shutil.rmtree(directory(name), ignore_errors=True)
        _call([sys.executable, "-m", "venv", str(directory(name))])
        exactly = ["--no-input", "--no-deps", "--require-hashes", "--requirement", str(_list(name))]
        _call([str(python(name)), "-m", "pip", "install", *exactly])
        if name == OURS:
            for packages in (directory(name) / "lib").glob("python*/site-packages"):
                (packages / "dragoman-checkout.pth").write_text(f"{SOURCES}\n", encoding="utf-8")
        stamp.write_text(json.dumps(wanted), encoding="utf-8")
    return python(name)


def _call(command: list[str], given: str = "") -> str:
    done = subprocess.run(command, input=given, env=variables(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        words = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotInstalledError("\n".join(words[-3:]))
    return done.stdout


def installed(name: str) -> dict[str, float]:
    """Megabytes and distributions, without what every environment has; ours with the checkout itself."""
    (packages,) = (directory(name) / "lib").glob("python*/site-packages")
    size = distributions = 0
    for entry in packages.iterdir():
        stem = entry.name.lower().partition("-")[0]
        if stem in NOT_COUNTED or entry.name in ("_distutils_hack", "distutils-precedence.pth", "pkg_resources"):
            continue
        distributions += entry.name.endswith(".dist-info")
        size += _size(entry)
    if name == OURS:
        distributions += 1
        size += _size(SOURCES / "dragoman")
    return {"megabytes": size / 1e6, "distributions": distributions}


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files if not file.is_symlink())


def version(name: str, distribution: str) -> str:
    code = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))"
    return _call([str(python(name)), "-c", code, distribution]).strip()


def pin(name: str, requirements: tuple[str, ...]) -> None:
    """Resolve with uv for this Python and system, and write down what it chose, with the hashes."""
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "compile", "-", "--generate-hashes"]
    chosen = _call([*uv, "--no-header", "--no-annotate", "--no-config", "--quiet"], "\n".join(requirements))
    _list(name).write_text(HEADER + chosen, encoding="utf-8")


def main() -> int:
    wanted = {row.environment: row.requirements for row in CONTENDERS.values() if row.environment != OURS} | EXTRA
    if sys.argv[1:2] == ["pin"]:
        for name, requirements in wanted.items():
            if not sys.argv[2:] or name in sys.argv[2:]:
                pin(name, requirements)
        return 0
    failed = 0
    for name in (OURS, *wanted):
        try:
            make(name)
        except NotInstalledError as error:
            failed = 1
            print(f"{name}: {error}", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main())
