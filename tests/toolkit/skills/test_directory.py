from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dragoman.errors import SkillError, SkillNotFoundError
from dragoman.toolkit import DirectorySkillStore
from dragoman.toolkit.skills import store as module

SECRET = "the secret outside"


def put(
    root: Path, name: str, description: str = "Does it.", body: str = "Do it.", declared: str | None = None
) -> Path:
    directory = root / name
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "SKILL.md").write_text(f"---\nname: {declared or name}\ndescription: {description}\n---\n{body}\n")
    return directory


FILES = ("references/guide.md", "scripts/run.py", "assets/deep/er/x.txt", ".hidden", ".git/config")
LINKS = {
    "inside-link.md": "references/guide.md", "inside-dir": "references", "link.md": "{outside}/secret.md",
    "relative.md": "../../outside/secret.md", "chain.md": "relative.md", "folder": "{outside}",
    "neighbour.md": "../other/private.md", "neighbours": "../other", "loop": "loop", "dangling": "nowhere", "up": "..",
    "proc": "/proc/self",
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory of skills with every way out that can be made of files, and secrets outside."""
    root, outside = tmp_path / "skills", tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text(SECRET)
    put(outside, "evil", body=SECRET)
    pdf, other = put(root, "pdf", "Reads PDFs."), put(root, "other")
    (other / "private.md").write_text(SECRET)
    for path in FILES:
        (pdf / path).parent.mkdir(parents=True, exist_ok=True)
        (pdf / path).write_text(f"content of {path}")
    for name, target in LINKS.items():
        (pdf / name).symlink_to(target.format(outside=outside))
    os.mkfifo(pdf / "pipe")
    return root


def store(*roots: Path) -> DirectorySkillStore:
    return DirectorySkillStore(roots)


HOSTILE_PATHS = [
    "../other/private.md", "../../outside/secret.md", "references/../../other/private.md",
    "references/../../../outside/secret.md", "./../other/private.md", "..", ".", "/", "//", "", "link.md",
    "relative.md", "chain.md", "folder/secret.md", "neighbour.md", "neighbours/private.md", "up/other/private.md",
    "up/pdf/references/guide.md", "proc/environ", "loop", "loop/x", "dangling", "pipe", "references", "references/",
    "nothing.md", "references/guide.md/x", ".hidden", ".git/config", "references/.hidden", "~/x", "~root/x",
    "references\\guide.md", "..\\..\\outside\\secret.md", "C:\\x", "file:///etc/passwd", "references/guide.md\0.png",
    "references/guide.md\n", "references/\u202eguide.md", "....//other/private.md", "%2e%2e/other/private.md",
    "..%2fother/private.md", "\uff0e\uff0e/other/private.md", "a/" * 300, "x" * 600, "x" * 300, "/etc/passwd",
    "/proc/self/environ", "/dev/stdin", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE_PATHS)
def test_nothing_outside_a_skill_is_read_for_it(path: str, root: Path) -> None:
    for given in {path, f"{root}/pdf/{path}" if path else path}:
        with pytest.raises(SkillError) as caught:
            store(root).load_supporting("pdf", given)
        assert caught.value.message.startswith("supporting file not found: ")
        assert caught.value.message.isprintable()
        assert SECRET not in str(caught.value)
        assert len(caught.value.message) < 800


def test_files_of_a_skill_are_read(root: Path) -> None:
    read = {path: path for path in ("references/guide.md", "scripts/run.py", "assets/deep/er/x.txt")}
    read |= dict.fromkeys(["./references//guide.md", "inside-link.md", "inside-dir/guide.md"], "references/guide.md")
    for path, file in read.items():
        found = store(root).load_supporting("pdf", path)
        assert (found.skill, found.text) == ("pdf", f"content of {file}")


HOSTILE_NAMES = [
    "../outside/evil", "../outside", "..", ".", "", " ", "/", "pdf/../other", "pdf/", "./pdf", "pdf\0", "pdf\nx",
    "pdf/references", "pdf\\..\\other", "PDF", "~", "~/pdf", ".git", "evil", "p" * 65, "pdf\u202e", "/etc", "C:\\x",
    "*", "p?f", "[p]df", "%70df", "\ud800", "-pdf",
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_leads_outside(name: str, root: Path) -> None:
    for attempt in (store(root).load, lambda name: store(root).load_supporting(name, "secret.md")):
        with pytest.raises(SkillNotFoundError) as caught:
            attempt(name)
        assert caught.value.message.startswith("skill not found: ")
        assert caught.value.message.isprintable()


def test_a_skill_that_links_outside_is_left_out(root: Path, tmp_path: Path) -> None:
    (root / "evil").symlink_to(tmp_path / "outside" / "evil")
    for name in ("file-link", "neighbour-link", "pipe", "folder", "dangling"):
        (root / name).mkdir()
    (root / "file-link" / "SKILL.md").symlink_to(tmp_path / "outside" / "evil" / "SKILL.md")
    (root / "neighbour-link" / "SKILL.md").symlink_to("../other/private.md")
    os.mkfifo(root / "pipe" / "SKILL.md")
    (root / "folder" / "SKILL.md").mkdir()
    (root / "dangling" / "SKILL.md").symlink_to("nowhere")
    (root / "alias").symlink_to("pdf")
    found = store(root)
    assert [skill.name for skill in found.list()] == ["pdf", "other"], "the alias comes first, and has its real name"
    for name in ("evil", "file-link", "neighbour-link", "pipe", "folder", "dangling"):
        assert any(problem.startswith(f"{name} was left out") for problem in found.problems), found.problems
        with pytest.raises(SkillNotFoundError):
            found.load(name)
    assert SECRET not in "".join(found.problems)


# --- finding ---------------------------------------------------------------------------------------------------------


def test_changes_are_seen_by_many_threads(tmp_path: Path) -> None:
    found = store(tmp_path)
    assert found.list() == ()
    directory = put(tmp_path, "a", "one")
    assert [skill.description for skill in found.list()] == ["one"]
    put(tmp_path, "a", "two, longer")
    assert found.load("a").description == "two, longer"
    put(tmp_path, "b")
    put(tmp_path, "c", body="another", declared="B")  # which is taken
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: [skill.name for skill in found.list()], range(80))) == [["a", "b"]] * 80
    assert any("c/SKILL.md is that of" in problem for problem in found.problems)
    (directory / "SKILL.md").unlink()
    assert [skill.name for skill in found.list()] == ["b"]
    with pytest.raises(SkillNotFoundError):
        found.load("a")


@pytest.mark.parametrize("declared", ["pdf", "PDF", "\uff50df"])
def test_no_skill_takes_the_name_of_another(root: Path, tmp_path: Path, declared: str) -> None:
    put(root, "aaa", body="evil", declared=declared)
    elsewhere = tmp_path / "first"
    put(elsewhere, "bbb", body="evil", declared=declared)
    found = store(elsewhere, root)
    assert found.load("pdf").body == "Do it."
    assert [skill.name for skill in found.list()] == ["other", "pdf"]
    for name, place in {"aaa": root, "bbb": elsewhere}.items():
        [problem] = [each for each in found.problems if each.startswith(f"{name} was left out")]
        assert f"{place}/{name}/SKILL.md is that of {root}/pdf/SKILL.md" in problem, "both are named"


def test_numbers_and_sizes_are_capped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        put(tmp_path, f"s{number}")
    put(tmp_path, "s9", body="x" * 300_000)
    found = store(tmp_path)
    assert [skill.name for skill in found.list()] == [f"s{number}" for number in range(5)]
    assert any("too large" in problem for problem in found.problems)
    (tmp_path / "s0" / "big").touch()
    for size in (1024 * 1024 + 1, 1 << 40):  # a file without end is read no further than the cap
        os.truncate(tmp_path / "s0" / "big", size)
        with pytest.raises(SkillError, match="too large: big has more than 1048576 bytes"):
            found.load_supporting("s0", "big")
    for name, value in (("_MAX_SKILLS", 3), ("_MAX_ENTRIES", 5), ("_MAX_LISTED", 0)):
        monkeypatch.setattr(module, name, value)
    assert len(found.list()) == 3
    assert sum("more than 3 skills" in problem for problem in found.problems) == 2
    assert any("more than 5 entries" in problem for problem in found.problems)
    assert found.load("s0").files == ()
