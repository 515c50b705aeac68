"""The page as it is committed: small, built from its sources, and built again by anybody who has a clone."""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

from tests.mcp.node import ROOT, NotInstalledError, npm

PAGE = ROOT / "page"
STATIC = ROOT / "src" / "dragoman" / "web" / "static"


def files(directory: Path) -> dict[str, bytes]:
    return {str(each.relative_to(directory)): each.read_bytes() for each in directory.rglob("*") if each.is_file()}


def test_page_is_built_from_its_sources_and_small() -> None:
    """Nobody who uses it needs Node."""
    names = ["index.html", "package.json", "package-lock.json", "vite.config.js"]
    names += [f"{folder}/{each.name}" for folder in ("src", "public/assets") for each in (PAGE / folder).iterdir()]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(f"{name}\0".encode() + (PAGE / name).read_bytes() + b"\0")
    assert (STATIC / "sources.sha256").read_text().strip() == digest.hexdigest(), "build it: npm run build, in page/"
    size = sum(len(gzip.compress(file.read_bytes())) for file in STATIC.rglob("*.*"))
    assert size < 200_000


def test_the_lock_is_for_every_system_and_any_registry() -> None:
    """npm writes only its own system's packages if there is a node_modules, and `npm ci` refuses such a lock."""
    locked = json.loads((PAGE / "package-lock.json").read_text())["packages"]
    needed = {name for each in locked.values() for name in each.get("optionalDependencies", {})}
    needed |= {name for each in locked.values() for name in each.get("dependencies", {})}
    here = {place.rpartition("node_modules/")[2] for place in locked}
    assert needed <= here, "remove node_modules and the lock, then: npm install --package-lock-only"
    assert not [place for place, each in locked.items() if place and "integrity" not in each]
    assert not [place for place, each in locked.items() if "resolved" in each]


@pytest.mark.slow
def test_a_clone_builds_the_committed_bytes(tmp_path: Path, outside_environ: dict[str, str]) -> None:
    page, built = tmp_path / "page", tmp_path / STATIC.relative_to(ROOT)
    shutil.copytree(PAGE, page, ignore=shutil.ignore_patterns("node_modules"))
    try:
        installed = npm("ci", directory=page, environ=outside_environ)
    except NotInstalledError as error:
        pytest.skip(str(error))
    if installed.returncode and "EUSAGE" not in installed.stderr:  # that is what npm says of a wrong lock
        pytest.skip(f"the page's packages cannot be installed: {installed.stderr.strip()[-300:]}")
    assert installed.returncode == 0, installed.stderr
    made = npm("run", "build", directory=page, environ=outside_environ)
    assert made.returncode == 0, made.stderr
    assert files(built) == files(STATIC)
    assert files(page)["package-lock.json"] == (PAGE / "package-lock.json").read_bytes()
