"""The package as text: its modules, and what a name in one of them stands for.

Owns: reading modules, following imports to where a name is made, and docstrings, those of attributes included.
Must not know: which names are public, and how they are shown.

Nothing is imported, so that it makes no difference which extras are installed, or which Python this is.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

__all__ = ["Definition", "Function", "Module", "Package", "attribute_docs", "docstring", "undented"]

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Assignment: TypeAlias = ast.Assign | ast.AnnAssign


def undented(text: str) -> str:
    """A docstring as it is meant: without the indentation of the code around it."""
    first, _, rest = text.expandtabs().partition("\n")
    return f"{first.strip()}\n{textwrap.dedent(rest)}".strip()


def docstring(node: ast.AST) -> str:
    """What a module, class or function says about itself; empty if nothing."""
    if isinstance(node, ast.Module | ast.ClassDef | Function) and node.body:
        return _string(node.body[0])
    return ""


def _string(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return undented(node.value.value)
    return ""


def attribute_docs(body: Sequence[ast.stmt]) -> Iterator[tuple[Assignment, str]]:
    """Each assignment with the string below it, which is its docstring."""
    for number, node in enumerate(body):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield node, _string(body[number + 1]) if number + 1 < len(body) else ""


@dataclass(frozen=True, eq=False)
class Module:
    """One file of the package."""

    name: str
    """As it is imported."""
    text: str
    tree: ast.Module
    is_package: bool

    @functools.cached_property
    def names(self) -> dict[str, list[ast.stmt]]:
        """The statements that make each name; several for an overloaded function."""
        found: dict[str, list[ast.stmt]] = {}
        for node in _statements(self.tree.body):
            for name in _made_by(node):
                found.setdefault(name, []).append(node)
        return found

    @functools.cached_property
    def docs(self) -> dict[str, str]:
        """The docstrings of its variables."""
        return {name: doc for node, doc in attribute_docs(self.tree.body) for name in _made_by(node)}

    @functools.cached_property
    def public(self) -> list[str]:
        """Its `__all__`; without one, what it defines and does not hide."""
        for node in self.names.get("__all__", []):
            if isinstance(node, ast.Assign):
                return list(ast.literal_eval(node.value))
        imports = (ast.Import, ast.ImportFrom)
        return [name for name, made in self.names.items() if name[0] != "_" and not isinstance(made[0], imports)]

    @functools.cached_property
    def _lines(self) -> list[bytes]:
        # By line feeds only, and in bytes: so the positions of the tree are counted.
        return self.text.encode().split(b"\n")

    def source(self, node: ast.expr) -> str:
        """An expression as it is written."""
        assert node.end_lineno is not None
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return b"\n".join(lines).decode()

    def absolute(self, node: ast.ImportFrom) -> str:
        """The module that an import names."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*parts, node.module] if node.module else parts)


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.If):  # what only type checkers import counts, and both ways of an `if`
            yield from _statements(node.body)
            yield from _statements(node.orelse)
        else:
            yield node


def _made_by(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | Function):
        return [node.name]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [alias.asname or alias.name.partition(".")[0] for alias in node.names]
    if isinstance(node, ast.AnnAssign):
        return [node.target.id] if isinstance(node.target, ast.Name) else []
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    return []


@dataclass(frozen=True)
class Definition:
    """What a name stands for, and where it is made."""

    module: Module
    name: str

    @property
    def node(self) -> ast.stmt:
        """The statement that makes it; of an overloaded function, the last, which does the work."""
        return self.module.names[self.name][-1]

    @property
    def nodes(self) -> list[ast.stmt]:
        return self.module.names[self.name]

    @property
    def doc(self) -> str:
        return docstring(self.node) or self.module.docs.get(self.name, "")

    @property
    def full_name(self) -> str:
        return f"{self.module.name}.{self.name}"


class Package:
    """The modules below one directory."""

    def __init__(self, directory: Path, name: str) -> None:
        self.name: str = name
        self._root: Path = directory / name
        self._modules: dict[str, Module | None] = {}

    def module(self, name: str) -> Module | None:
        """A module of the package; None for one of anybody else."""
        if name not in self._modules:
            self._modules[name] = self._read(name)
        return self._modules[name]

    def _read(self, name: str) -> Module | None:
        top, _, inner = name.partition(".")
        if top != self.name:
            return None
        path = self._root.joinpath(*inner.split(".")) if inner else self._root
        is_package = path.is_dir()
        file = path / "__init__.py" if is_package else path.with_suffix(".py")
        if not file.is_file():
            return None
        text = file.read_text(encoding="utf-8")
        return Module(name, text, ast.parse(text), is_package)

    def find(self, module: Module, name: str) -> Definition | str | None:
        """Where a name of this module is made: in the package, or by its full name elsewhere (`typing.Protocol`)."""
        nodes = module.names.get(name)
        if not nodes:
            return None
        node = nodes[-1]
        if isinstance(node, ast.Import):
            return name
        if not isinstance(node, ast.ImportFrom):
            return Definition(module, name)
        asked = next(alias.name for alias in node.names if (alias.asname or alias.name) == name)
        source = module.absolute(node)
        home = self.module(source)
        if home is None or home is module or asked not in home.names:  # not ours, or a module
            return f"{source}.{asked}"
        return self.find(home, asked)

    def definition(self, module: str, name: str) -> Definition | None:
        """What `from module import name` gives."""
        home = self.module(module)
        found = None if home is None else self.find(home, name)
        return found if isinstance(found, Definition) else None
