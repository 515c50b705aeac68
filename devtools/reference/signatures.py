"""Signatures as people write them: from the source's own words, on one line or one parameter a line.

Owns: the text of an expression, parameters with annotations and defaults, and their layout.
Must not know: what the parameters belong to.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from .sources import Definition, Function, Module, Package

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "LEFT_OUT",
    "WIDTH",
    "Parameter",
    "annotation_text",
    "annotations_of",
    "default_text",
    "laid_out",
    "names_in",
    "parameters_of",
    "signatures_of",
    "text_of",
]

WIDTH = 96
"""How long a line of code may be before it is broken."""
LONG = 60
"""How long a default may be before it is left out."""
LEFT_OUT = "..."

_MANAGERS: Final = {"contextmanager": "AbstractContextManager", "asynccontextmanager": "AbstractAsyncContextManager"}
"""What a decorator makes of a generator: something for a `with` block."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    name: str
    annotation: str = ""
    default: str | None = None
    kind: str = ""
    """`/` positional only, `*` the rest of these, `k` keyword only, `**` the rest of those, empty: either way."""
    doc: str = ""

    def __str__(self) -> str:
        prefix = self.kind if self.kind in {"*", "**"} else ""
        text = f"{prefix}{self.name}"
        if self.annotation:
            text += f": {self.annotation}"
        if self.default is not None:
            text += f" = {self.default}" if self.annotation else f"={self.default}"
        return text


def text_of(module: Module, node: ast.expr) -> str:
    """An expression in the words of the source, on one line."""
    found = module.source(node)
    if "\n" not in found:
        return found
    lines = _without_comments(f"({found})")[1:-1].split("\n")
    text = " ".join([line.strip() for line in lines if line.strip()])
    text = re.sub(r"([(\[{]) ", r"\1", text)
    return re.sub(r",? ([)\]}])", r"\1", text)


def _without_comments(text: str) -> str:
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
    return "\n".join(lines)


def annotation_text(module: Module, node: ast.expr | None) -> str:
    """An annotation; one in quotes is shown without them."""
    if node is None:
        return ""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return text_of(module, node)


def default_text(package: Package, module: Module, node: ast.expr) -> str:
    """A default value: a name of the package that stands for something simple is shown as that."""
    if isinstance(node, ast.Lambda):
        return LEFT_OUT
    if isinstance(node, ast.Name) and not node.id.startswith("__"):
        made = package.find(module, node.id)
        if isinstance(made, Definition) and isinstance(made.node, ast.Assign | ast.AnnAssign):
            value = made.node.value
            if isinstance(value, ast.Constant) or (isinstance(value, ast.UnaryOp | ast.BinOp) and _is_number(value)):
                return default_text(package, made.module, value)
            if node.id.startswith("_"):
                return LEFT_OUT
    text = text_of(module, node)
    hidden = len(text) > LONG or any(name.startswith("_") and name[:2] != "__" for name in _all_names(node))
    return LEFT_OUT if hidden else text


def _is_number(node: ast.AST) -> bool:
    allowed = ast.Constant | ast.UnaryOp | ast.BinOp | ast.operator | ast.unaryop
    return all(isinstance(part, allowed) for part in ast.walk(node))


def _all_names(node: ast.AST) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr


def names_in(node: ast.expr | None) -> list[str]:
    """The names that an annotation uses, in order; also in the quoted parts of one."""
    found: list[str] = []

    def visit(part: ast.AST) -> None:
        if isinstance(part, ast.Name):
            found.append(part.id)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            try:
                visit(ast.parse(part.value, mode="eval").body)
            except SyntaxError:
                return
        elif isinstance(part, ast.Subscript) and isinstance(part.value, ast.Name) and part.value.id == "Literal":
            return
        else:
            for child in ast.iter_child_nodes(part):
                visit(child)

    if node is not None:
        visit(node)
    return list(dict.fromkeys(found))


def parameters_of(package: Package, module: Module, node: Function, *, bound: bool = False) -> list[Parameter]:
    """The parameters of a function; without the first where it is bound (`self`, `cls`)."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    found = [
        (each, default, "/" if number < len(given.posonlyargs) else "")
        for number, (each, default) in enumerate(zip(plain, defaults, strict=True))
    ]
    if bound:
        found = found[1:]
    if given.vararg is not None:
        found.append((given.vararg, None, "*"))
    found += [(each, default, "k") for each, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg is not None:
        found.append((given.kwarg, None, "**"))
    return [
        Parameter(
            name=each.arg,
            annotation=annotation_text(module, each.annotation),
            default=None if default is None else default_text(package, module, default),
            kind=kind,
        )
        for each, default, kind in found
        if not (each.arg.startswith("_") and default is not None)
    ]


def laid_out(before: str, parameters: Sequence[Parameter], after: str = "") -> str:
    """`before(parameters)after`, on one line if it fits."""
    words: list[str] = []
    kinds = [each.kind for each in parameters]
    for number, each in enumerate(parameters):
        if each.kind == "k" and "*" not in kinds[:number] and "k" not in kinds[:number]:
            words.append("*")
        words.append(str(each))
        if each.kind == "/" and "/" not in kinds[number + 1 :]:
            words.append("/")
    line = f"{before}({', '.join(words)}){after}"
    if len(line) <= WIDTH or not words:
        return line
    return f"{before}(\n" + "".join([f"    {word},\n" for word in words]) + f"){after}"


def signatures_of(package: Package, module: Module, nodes: Sequence[Function], *, bound: bool = False) -> Iterator[str]:
    """What a function can be called with: its overloads, or itself."""
    overloads = [node for node in nodes if any(ast.unparse(each) == "overload" for each in node.decorator_list)]
    for node in overloads or nodes[-1:]:
        returns, word = annotation_text(module, node.returns), "async def" if _is_async(node) else "def"
        if manager := _MANAGERS.get(_decorator(node)):
            given = re.match(r"\w+\[(.*?)(?:, None)*\]$", returns)
            returns, word = f"{manager}[{given[1] if given else 'object'}]", "def"
        parameters = parameters_of(package, module, node, bound=bound)
        yield laid_out(f"{word} {node.name}", parameters, f" -> {returns}" if returns else "")


def annotations_of(node: Function) -> Iterator[ast.expr]:
    """The annotations of a function, in order."""
    given = node.args
    rest = [each for each in (given.vararg, given.kwarg) if each is not None]
    for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *rest):
        if each.annotation is not None:
            yield each.annotation
    if node.returns is not None:
        yield node.returns


def _is_async(node: Function) -> bool:
    return isinstance(node, ast.AsyncFunctionDef)


def _decorator(node: Function) -> str:
    return ast.unparse(node.decorator_list[0]).rpartition(".")[2] if node.decorator_list else ""
