"""The reference says what the code says, and says it whichever Python and extras are there."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from devtools import reference
from devtools.places import ROOT
from devtools.reference.book import Book, Entry, slug
from devtools.reference.contents import INSIDE, Page, Section
from devtools.reference.entries import entry_text
from devtools.reference.prose import first_sentence, markdown
from devtools.reference.sources import Package, undented

BOOK = reference.book()
PAGES = reference.pages(BOOK)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]*)\)")


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


# --- the pages -------------------------------------------------------------------------------------------------------


def test_the_pages_are_up_to_date() -> None:
    found = reference.problems()
    assert not found, "\n".join(found)


def test_every_public_name_is_in_the_index_once() -> None:
    import dragoman

    index = PAGES["README.md"]
    for name in set(dragoman.__all__) - {"errors"}:  # the module: its names are there
        assert len(re.findall(rf"^- \[`{name}(?:\(\))?`\]", index, re.MULTILINE)) >= 1, name
    assert BOOK.missing() == []
    places = [entry.definition for entry in BOOK.all]
    assert len(places) == len(set(places)), "a name stands on two pages"


def test_whatever_the_documentation_imports_is_on_a_page() -> None:
    known = {(entry.namespace, entry.name) for entry in BOOK.all}
    top = {entry.name for entry in BOOK.all if entry.namespace == "dragoman"} | {"DragomanError", "errors"}
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for module, names in re.findall(r"^\s*from (dragoman[\w.]*) import (.*)$", document.read_text(), re.MULTILINE):
            for name in [each.split(" as ")[0].strip() for each in names.split(",")]:
                is_known = name in top or name == "(" or (module, name) in known
                assert is_known, f"{document.name}: from {module} import {name}"


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    headings = {
        file: {slug(heading) for heading in HEADING.findall(without_code(text))} for file, text in PAGES.items()
    }
    for target in LINK.findall(without_code(PAGES[name])):
        file, _, anchor = target.partition("#")
        if file.startswith("../"):
            assert (reference.PLACE / file).exists(), target
        else:
            assert file in {"", *PAGES}, target
            assert not anchor or anchor in headings[file or name], target


@pytest.mark.parametrize("name", PAGES)
def test_headings_are_told_apart(name: str) -> None:
    found = [slug(heading) for heading in HEADING.findall(without_code(PAGES[name]))]
    doubles = {each for each in found if found.count(each) > 1}
    assert not doubles if name != "README.md" else True


@pytest.mark.parametrize("name", PAGES)
def test_pages_hold_nothing_of_this_machine_and_nothing_private(name: str) -> None:
    text = PAGES[name]
    assert str(ROOT) not in text
    assert not re.search(r" at 0x[0-9a-f]+|<class '|<function ", text)
    assert not re.search(r"^(?:###? |- `)(?:\w+\.)?_(?!_version__)", text, re.MULTILINE)
    assert text.endswith("\n")
    assert "\n\n\n" not in text


def test_members_that_are_not_shown_are_there() -> None:
    entries = {f"{entry.namespace}.{entry.name}": entry for entry in BOOK.all}
    for name, hidden in INSIDE.items():
        assert hidden <= {member.name for member in BOOK.class_of(entries[name]).members}, name


def test_names_say_what_they_are_for() -> None:
    assert not reference.undocumented(BOOK)


@pytest.mark.parametrize("entry", BOOK.all, ids=lambda entry: f"{entry.namespace}.{entry.name}")
def test_a_first_sentence_is_a_sentence(entry: Entry) -> None:
    said = first_sentence(entry.doc)
    assert not said or re.search(r"[.!?…)]$", said), said


# --- signatures are those of the objects -----------------------------------------------------------------------------

KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: "/",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "",
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.KEYWORD_ONLY: "k",
    inspect.Parameter.VAR_KEYWORD: "**",
}
MADE = [entry for entry in BOOK.all if entry.kind in {"class", "exception"}]


@pytest.mark.parametrize("entry", MADE, ids=lambda entry: f"{entry.namespace}.{entry.name}")
def test_a_class_is_made_as_its_signature_says(entry: Entry) -> None:
    shown = BOOK.class_of(entry)
    if shown.kind in {"protocol", "typeddict", "enum"} or not shown.parameters:
        return
    made = getattr(import_module(entry.namespace), entry.name)
    try:
        real = inspect.signature(made).parameters.values()
    except (NameError, TypeError):  # msgspec evaluates the annotations, also those that only type checkers can
        assert {each.name for each in shown.parameters} == {*made.__struct_fields__}
        return
    ours = [(each.name, each.kind, each.default is not None) for each in shown.parameters]
    theirs = [
        (each.name, KINDS[each.kind], each.default is not inspect.Parameter.empty)
        for each in real
        if each.name not in {"extra", "*"} and not each.name.startswith("_")
    ]
    assert ours == theirs


@pytest.mark.parametrize("entry", MADE, ids=lambda entry: f"{entry.namespace}.{entry.name}")
def test_members_are_there_and_are_called_as_shown(entry: Entry) -> None:
    made = getattr(import_module(entry.namespace), entry.name)
    shown = BOOK.class_of(entry)
    for member in shown.members:
        if not member.parameters and not member.signatures:
            continue
        real = list(
            inspect.signature(inspect.getattr_static(made, member.name).__get__(None, made)).parameters.values()
        )
        skipped = 1 if member.kind == "method" else 0
        ours = [(each.name, each.kind) for each in member.parameters]
        theirs = [(each.name, KINDS[each.kind]) for each in real[skipped:]]
        assert ours == theirs, member.name
    wanted = {
        name
        for name, value in inspect.getmembers_static(made)
        if not name.startswith("_")
        and not getattr(value, "__name__", "").startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod))
        and (getattr(value, "__module__", None) or made.__module__).startswith("dragoman")
    }
    assert wanted <= {member.name for member in shown.all_members}


# --- the machinery ---------------------------------------------------------------------------------------------------

MODULE = '''
"""A module."""
from collections.abc import Callable
from typing import TypeAlias, overload
from msgspec import Struct, field
from .deep import Base as Root, LIMIT

__all__ = ["Box", "Kind", "open_box"]

Size: TypeAlias = "int | None"
Kind: TypeAlias = (
    int  # a number
    | str
)
"""What `Box` holds, see open_box()."""
_NOTHING = object()

class Box(Root, Struct, kw_only=True):
    """A box of *things*. With <tags>.

    The limit:

        Box(limit=1)

        Box()
    """
    limit: int = LIMIT
    """How many."""
    parts: list[int] = field(default_factory=list)
    _hidden: int = 0

    def put(self, what: Kind, size: Size = None, /, *more: object, at_position: int = 0, **rest: object) -> None:
        """Put `what` into the Box."""

    @staticmethod
    async def made() -> "Box":
        """A new one."""

    def _private(self) -> None: ...

@overload
def open_box(box: Box) -> int: ...
@overload
def open_box(box: None = None, *, marker: object = _NOTHING) -> None: ...
def open_box(box: Box | None = None, *, marker: object = _NOTHING) -> int | None:
    """Open it. Raises ValueError."""
'''
DEEP = '''
LIMIT = -3
class Base:
    name: str
    """Its name."""
    def __init__(self) -> None:
        self.seen: int = 0
        self._secret: int = 1
    def __enter__(self): ...
    @property
    def full(self) -> bool:
        """Whether nothing more goes in."""
        return True
'''


@pytest.fixture
def small(tmp_path: Path) -> Book:
    package = tmp_path / "small"
    package.mkdir()
    (package / "__init__.py").write_text(MODULE, encoding="utf-8")
    (package / "deep.py").write_text(DEEP, encoding="utf-8")
    sections = (Section(namespace="small"),)
    return Book(Package(tmp_path, "small"), [Page(file="a.md", title="A", about="", sections=sections)])


def test_a_class_as_a_reader_sees_it(small: Book) -> None:
    (box,) = [entry for entry in small.all if entry.name == "Box"]
    text = entry_text(small, box, "small")
    assert text.startswith("## class Box\n\n```text\nclass Box(name: str, *, limit: int = -3, parts: list[int] = ...)")
    assert "Size = int | None\n```" in text
    assert "A box of \\*things\\*. With \\<tags>." in text
    assert "```text\nBox(limit=1)\n\nBox()\n```" in text
    assert "- `limit` — How many." in text
    assert "- `full: bool` — Whether nothing more goes in." in text
    assert "- `seen: int`" in text
    assert "Supports `with`." in text
    assert (
        "def put(\n    what: Kind,\n    size: Size = None,\n    /,\n    *more: object,\n    at_position: int = 0,\n"
        "    **rest: object,\n) -> None"
    ) in text
    assert "@staticmethod\nasync def made() -> Box\n" in text
    assert "hidden" not in text
    assert "secret" not in text
    assert "_private" not in text


def test_types_and_overloads_are_in_the_words_of_the_source(small: Book) -> None:
    kind, opened = (next(e for e in small.all if e.name == name) for name in ("Kind", "open_box"))
    assert "Kind = int | str\n" in entry_text(small, kind, "small")
    assert "What [`Box`](#class-box) holds, see open_box()." in entry_text(small, kind, "small")
    shown = entry_text(small, opened, "elsewhere")
    assert "from small import open_box" in shown
    assert "def open_box(box: Box) -> int\ndef open_box(box: None = None, *, marker: object = ...) -> None" in shown


def test_a_name_without_a_page_is_told(small: Book, tmp_path: Path) -> None:
    assert small.missing() == []
    sections = (Section(namespace="small", modules=("small.deep",)),)
    empty = Book(Package(tmp_path, "small"), [Page(file="a.md", title="A", about="", sections=sections)])
    assert empty.missing() == ["small.Box", "small.Kind", "small.open_box"]


def test_pages_that_are_out_of_date_are_told_and_mended(tmp_path: Path) -> None:
    shutil.copytree(reference.PLACE, tmp_path, dirs_exist_ok=True)
    reference.write(tmp_path, BOOK)
    assert reference.problems(tmp_path, BOOK) == []
    assert reference.write(tmp_path, BOOK) == []
    (tmp_path / "chat.md").write_text("old")
    (tmp_path / "gone.md").write_text("")
    (tmp_path / "README.md").unlink()
    assert reference.problems(tmp_path, BOOK) == [
        "docs/reference/README.md is missing. Make it with: python3 dev.py reference",
        "docs/reference/chat.md is out of date with the docstrings. Make it again with: python3 dev.py reference",
        "docs/reference/gone.md is no page of the reference. Remove it with: python3 dev.py reference",
    ]
    assert sorted(reference.write(tmp_path, BOOK)) == ["README.md", "chat.md", "gone.md"]
    assert reference.problems(tmp_path, BOOK) == []


def test_nothing_of_the_package_is_imported() -> None:
    code = (
        "import sys; sys.modules['msgspec'] = None\n"
        "from devtools import reference; reference.pages()\n"
        "print(*[name for name in sys.modules if name.partition('.')[0] == 'dragoman'])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("doc", "sentence"),
    [
        ("One. Two.", "One."),
        ("As in `a.b`. More", "As in `a.b`."),
        ("See e.g. this, and\nthat. Then.", "See e.g. this, and that."),
        ("Only a part\n\nNext", "Only a part"),
        ("Costs 0.5 or 1.0. Yes.", "Costs 0.5 or 1.0."),
    ],
)
def test_first_sentences(doc: str, sentence: str) -> None:
    assert first_sentence(doc) == sentence


def test_markdown_links_each_name_once_and_leaves_code_alone() -> None:
    known = {"ToolCall": "t.md#c", "tool": "t.md#t"}
    text = markdown("A ToolCall, `ToolCall`, `tool(x)`, `a * b`, tool_name and _x_.", known.get)
    assert text == "A [ToolCall](t.md#c), `ToolCall`, [`tool(x)`](t.md#t), `a * b`, tool_name and \\_x\\_."


def test_small_tables_keep_their_columns() -> None:
    assert (
        markdown("See:\n\na    one\nbbb  two, _x_\nc    three")
        == "See:\n\n```text\na    one\nbbb  two, _x_\nc    three\n```"
    )


def test_docstrings_lose_their_indentation() -> None:
    assert undented("A.\n\n        B\n            C\n    ") == "A.\n\nB\n    C"
    assert ast.get_docstring(ast.parse('"""A.\n\n  B\n"""')) == undented("A.\n\n  B\n")
