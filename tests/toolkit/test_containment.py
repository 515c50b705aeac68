"""No tool reads, writes or finds anything outside the workspace, whatever the path, and whatever changes meanwhile."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from dragoman.conversation import ToolResult
from dragoman.errors import ConfigurationError, ToolError
from dragoman.toolkit import Workspace
from dragoman.toolkit.files import edit_tool, read_tool, replace_file, write_tool
from dragoman.toolkit.search import glob_tool, grep_tool
from tests.toolkit.calling import bad, call, good, meanwhile, words

SECRET = "the secret of the neighbour"


LINKS = {
    "to_file": "{base}/outside/secret.txt", "to_directory": "{base}/outside", "up": "..", "up_and_out": "../outside",
    "chain": "chain2", "chain2": "sub/../../outside", "sub/back": "../../outside/deep",
    "sub/deep/far": "../../../outside/secret.txt", "to_root_of_all": "/", "to_etc": "/etc", "to_proc": "/proc/self",
    "loop": "loop", "loop_a": "loop_b", "loop_b": "loop_a", "dangling_out": "../outside/new.txt",
    "sibling": "../root-other", "inside": "sub/inner.txt", "inside_absolute": "{base}/root/sub/inner.txt",
    "inside_directory": "sub",
}  # fmt: skip


def make_tree(base: Path) -> Path:
    """A workspace full of traps, and secrets beside it."""
    root = base / "root"
    for name in ("outside/secret.txt", "outside/deep/secret.txt", "root-other/secret.txt"):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(SECRET)
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "plain.txt").write_text("plain")
    (root / "sub" / "inner.txt").write_text("inner")
    for name, target in LINKS.items():
        (root / name).symlink_to(target.format(base=base))
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path)


@pytest.fixture
def outside(tmp_path: Path, root: Path) -> Path:
    return tmp_path / "outside"


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tree(tmp_path_factory.mktemp("tree"))


HOSTILE = words(
    "../outside/secret.txt ../../../../../../../../etc/passwd sub/../../outside/secret.txt "
    "sub/deep/../../../outside/secret.txt ./../outside/secret.txt sub//..//..//outside//secret.txt "
    "sub/./.././../outside/secret.txt /etc/passwd //etc/passwd ///etc///passwd /proc/self/environ "
    "/proc/self/root/etc/passwd /dev/stdin to_file to_directory/secret.txt to_directory/deep/secret.txt "
    "to_directory/../outside/secret.txt up/outside/secret.txt up_and_out/secret.txt chain/secret.txt "
    "sub/back/secret.txt sub/deep/far to_root_of_all/etc/passwd to_etc/passwd to_proc/environ dangling_out "
    "sibling/secret.txt inside_directory/../../outside/secret.txt {root}-other/secret.txt "
    "{root}/../outside/secret.txt {root}/to_directory/secret.txt {root}/sub/../../outside/secret.txt "
    "{parent}/outside/secret.txt {parent} .. up to_directory /"
)


TOOLS = ["Read", "Write", "Edit", "Glob", "Grep"]


def called(tool: str, root: Path, path: str) -> ToolResult:
    workspace = Workspace(root)
    calls: dict[str, Callable[[], ToolResult]] = {
        "Read": lambda: call(read_tool(workspace), file_path=path),
        "Write": lambda: call(write_tool(workspace), file_path=path, content="pwned"),
        "Edit": lambda: call(edit_tool(workspace), file_path=path, old_string="secret", new_string="pwned"),
        "Glob": lambda: call(glob_tool(workspace), pattern="**", path=path),
        "Grep": lambda: call(grep_tool(workspace), pattern=".", path=path),
    }
    return calls[tool]()


def everything(directory: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in sorted(directory.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("path", HOSTILE)
@pytest.mark.parametrize("tool", TOOLS)
def test_paths_outside_are_refused(root: Path, outside: Path, tool: str, path: str) -> None:
    before = everything(outside)
    text = bad(called(tool, root, path.format(root=root, parent=root.parent)), "denied")
    assert "outside the workspace" in text
    assert SECRET not in text
    assert everything(outside) == before


@pytest.mark.parametrize(
    "path", ["loop", "loop_a", "loop/x", "no\0thing", "x" * 300, "/".join(["sub/.."] * 600), "pipe/x"]
)
@pytest.mark.parametrize("tool", TOOLS)
def test_unusable_paths_are_execution_errors(root: Path, tool: str, path: str) -> None:
    assert "cannot use" in bad(called(tool, root, path), "execution")


@pytest.mark.parametrize("path", ["x" * 1_000_000, "../" + "x" * 1_000_000, "/x" * 500_000, "\0" * 1_000_000])
@pytest.mark.parametrize("tool", TOOLS)
def test_an_error_is_short_however_long_the_path(root: Path, tool: str, path: str) -> None:
    assert len(called(tool, root, path).text) < 3000


@pytest.mark.parametrize("path", ["pipe", "sub", ".", "sub/..", "plain.txt/x", "socket", "no such file"])
@pytest.mark.parametrize("tool", ["Read", "Edit"])
def test_only_regular_files_are_opened(root: Path, tool: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)  # the names of sockets must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        assert "cannot use" in bad(called(tool, root, path), "execution")


@pytest.mark.parametrize("path", ["pipe", "sub", ".", "inside_directory", "sub/", "new/"])
def test_only_files_are_replaced(root: Path, path: str) -> None:
    before = sorted(root.rglob("*"))
    assert "cannot use" in bad(called("Write", root, path), "execution")
    assert sorted(root.rglob("*")) == before


@pytest.mark.parametrize(
    "path",
    words(
        "sub/inner.txt inside inside_absolute inside_directory/inner.txt inside_directory/deep/../inner.txt "
        "./sub//inner.txt sub/../sub/inner.txt {root}/sub/inner.txt {root}/inside"
    ),
)
def test_paths_inside_are_read_also_through_links(root: Path, path: str) -> None:
    assert good(called("Read", root, path.format(root=root))) == "inner"


def test_a_workspace_may_be_a_link_and_must_be_a_directory(root: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(root)
    for path in ("plain.txt", f"{link}/plain.txt", f"{root}/plain.txt"):
        assert good(called("Read", link, path)) == "plain"
    for path in (root / "plain.txt", root / "nothing"):
        with pytest.raises(ConfigurationError, match="is not a directory"):
            Workspace(path)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    "path", ["/proc/self/environ", "proc/self/environ", "/proc/self/maps", "/sys/kernel/notes", "/dev/null", "dev/zero"]
)
@pytest.mark.parametrize("tool", ["Read", "Edit", "Grep"])
def test_system_files_are_refused_even_if_the_workspace_is_the_root(tool: str, path: str) -> None:
    result = called(tool, Path("/"), path)
    assert result.is_error
    assert "belongs to the system" in result.text or "cannot use" in result.text
    assert "PATH=" not in result.text


# --- links that are put there meanwhile ------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", [*TOOLS, "Read a file"])
def test_a_swapped_link_does_not_lead_outside(root: Path, outside: Path, tool: str) -> None:
    """`door` is a directory, or a file, and a link to the outside by turns."""
    door, real, link = root / "door", root / "real", root / "link"
    if tool == "Read a file":
        real.write_text("harmless secret")
        link.symlink_to(outside / "secret.txt")
    else:
        real.mkdir()
        (real / "secret.txt").write_text("harmless")
        link.symlink_to(outside)

    def swap() -> None:
        for each in (real, link):
            try:
                each.rename(door)
                door.rename(each)
            except OSError:  # `Write` has made a directory of its own there
                shutil.rmtree(door, ignore_errors=True)

    before = everything(outside)
    path = "door/secret.txt" if tool in ("Read", "Write", "Edit") else "door"
    with meanwhile(swap):
        texts = [called(tool.partition(" ")[0], root, path).text for _ in range(10 if tool == "Grep" else 150)]
    assert not [text for text in texts if SECRET in text]
    assert everything(outside) == before


def test_a_link_created_meanwhile_is_replaced_not_followed(root: Path, outside: Path) -> None:
    workspace = Workspace(root)
    with workspace.place("plain.txt") as place:
        (root / "plain.txt").unlink()
        (root / "plain.txt").symlink_to(outside / "secret.txt")
        replace_file(place, b"new", None)
    assert (root / "plain.txt").read_text() == "new"
    assert not (root / "plain.txt").is_symlink()
    assert (outside / "secret.txt").read_text() == SECRET


def test_descriptors_are_closed(root: Path) -> None:
    if not Path("/proc/self/fd").exists():  # pragma: no cover
        pytest.skip("needs /proc")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for path in [*HOSTILE, "plain.txt", "inside", "loop", "sub/deep/.."]:
        for tool in ("Read", "Write", "Edit", "Glob"):
            called(tool, root, path.format(root=root, parent=root.parent))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


PARTS = words(".. . sub deep up to_directory chain sub/back inside inside_directory secret.txt plain.txt outside")


@given(parts=st.lists(st.sampled_from([*PARTS, ""]), min_size=1, max_size=8), absolute=st.booleans())
def test_no_path_leads_outside(shared_root: Path, parts: list[str], absolute: bool) -> None:
    root, path = shared_root, "/".join(parts)
    try:
        with Workspace(root).place(f"{root}/{path}" if absolute else path) as place:
            where = Path(f"/proc/self/fd/{place.directory}").resolve() if Path("/proc/self/fd").exists() else root
    except ToolError:
        return
    assert where == root or root in where.parents
    # What we say it is called is what the system calls it.
    assert os.path.realpath(root / place.path) == str(root / place.path) or not (root / place.path).exists()
