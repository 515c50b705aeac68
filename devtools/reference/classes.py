"""Classes taken apart: what one is made with, what it has and what it can do.

Owns: the kinds of classes (values, dicts of options, protocols, …), their constructors, and which members are shown.
Must not know: how a page looks.

Members of a base that no page shows stand with the class itself; a base that has an entry of its own is only named.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from .signatures import (
    LEFT_OUT,
    Parameter,
    annotation_text,
    annotations_of,
    default_text,
    laid_out,
    parameters_of,
    signatures_of,
)
from .sources import Definition, Function, Module, Package, attribute_docs, docstring

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = ["OPERATIONS", "Class", "Member"]

KINDS: Final[Mapping[str, str]] = {
    "msgspec.Struct": "struct",
    "typing.NamedTuple": "namedtuple",
    "typing.TypedDict": "typeddict",
    "typing.Protocol": "protocol",
    "enum.Enum": "enum",
    "enum.StrEnum": "enum",
    "enum.IntEnum": "enum",
}
"""What a base from elsewhere makes of a class. Of several the first in this table counts."""

WITHOUT_CONSTRUCTOR: Final = frozenset({"typeddict", "protocol", "enum"})

HIDDEN_BASES: Final = frozenset({"dragoman.conversation.values.Value"})
"""Bases whose fields are on every value; the page on conversations says so once."""

OPERATIONS: Final[Mapping[str, str]] = {
    "__call__": "calls",
    "__enter__": "`with`",
    "__aenter__": "`async with`",
    "__iter__": "`for`",
    "__aiter__": "`async for`",
    "__len__": "`len()`",
    "__contains__": "`in`",
    "__getitem__": "`[…]`",
    "__add__": "`+`",
    "__bool__": "`bool()`",
    "__str__": "`str()`",
}
"""What a special method is good for, where readers are to know."""


@dataclass(frozen=True, kw_only=True)
class Member:
    """One attribute or method."""

    name: str
    kind: str
    """`attribute`, `property`, `method`, `classmethod` or `staticmethod`."""
    module: Module
    doc: str = ""
    annotation: str = ""
    default: str | None = None
    signatures: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    is_async: bool = False
    annotations: tuple[ast.expr, ...] = ()
    """Where the types that it names are found."""


@dataclass(frozen=True, kw_only=True)
class _Field:
    parameter: Parameter
    node: ast.AnnAssign
    module: Module
    in_constructor: bool = True


@dataclass(frozen=True)
class Class:
    """A class of the package, as a reader sees it."""

    package: Package
    definition: Definition
    is_shown: Callable[[Definition], bool] = field(default=lambda _: False)
    """Whether a class has an entry of its own."""

    @property
    def node(self) -> ast.ClassDef:
        node = self.definition.node
        assert isinstance(node, ast.ClassDef)
        return node

    # --- bases ---

    @functools.cached_property
    def bases(self) -> tuple[Definition | str, ...]:
        """As the class names them, without what stands in brackets."""
        found: list[Definition | str] = []
        for expression in self.node.bases:
            base = expression.value if isinstance(expression, ast.Subscript) else expression
            if isinstance(base, ast.Name):
                found.append(self.package.find(self.definition.module, base.id) or base.id)
            else:
                found.append(ast.unparse(base))
        return tuple(found)

    @functools.cached_property
    def line(self) -> tuple[Class, ...]:
        """This class and its bases in the package, in the order in which members are looked up."""
        found: list[Class] = [self]
        for base in self.bases:
            if isinstance(base, Definition) and isinstance(base.node, ast.ClassDef):
                above = Class(self.package, base, self.is_shown).line
                found = [each for each in found if each.definition not in [one.definition for one in above]]
                found += above
        return tuple(found)

    @functools.cached_property
    def merged(self) -> tuple[Class, ...]:
        """The classes whose members are shown here: itself, and bases that have no entry."""
        elsewhere = {above.definition for each in self.named_bases for above in each.line}
        own = [each for each in self.line if each.definition not in elsewhere]
        return tuple([each for each in own if each.definition.full_name not in HIDDEN_BASES])

    @functools.cached_property
    def named_bases(self) -> tuple[Class, ...]:
        """The nearest bases that have an entry of their own."""
        found: list[Class] = []
        for base in self.bases:
            if isinstance(base, Definition) and isinstance(base.node, ast.ClassDef):
                above = Class(self.package, base, self.is_shown)
                found += [above] if self.is_shown(base) else above.named_bases
        return tuple({each.definition: each for each in found}.values())

    @functools.cached_property
    def kind(self) -> str:
        foreign = {base for each in self.line for base in each.bases if isinstance(base, str)}
        if "typing.Protocol" not in self.bases:
            foreign.discard("typing.Protocol")
        for base, kind in KINDS.items():
            if base in foreign:
                return kind
        if any(base.endswith(("Exception", "Error", "Warning")) for base in foreign):
            return "exception"
        return "dataclass" if _dataclass(self.node) is not None else "class"

    # --- made with ---

    @property
    def signature(self) -> str:
        """`class Name(...)`, with what a constructor takes."""
        before = f"class {self.definition.name}"
        if self.kind == "typeddict":
            return f"{before}(TypedDict{', total=False' if _keyword(self.node.keywords, 'total') is False else ''})"
        if self.kind in WITHOUT_CONSTRUCTOR:
            return f"{before}({self.kind.capitalize()})"
        if not self.parameters and self.kind == "class" and (foreign := self._foreign()):
            return f"{before}({foreign})"
        return laid_out(before, self.parameters) if self.parameters else before

    def _foreign(self) -> str:
        """A base from elsewhere that says how it is made."""
        for expression in self.node.bases:
            text = ast.unparse(expression)
            if not text.startswith("Generic") and self._function("__init__") is None:
                return text
        return ""

    @functools.cached_property
    def parameters(self) -> list[Parameter]:
        """What the constructor takes."""
        makes_own = (self.kind == "struct" or _has_init(self.node)) and not self._function("__init__", own=True)
        if self.kind in {"struct", "namedtuple"} or (self.kind == "dataclass" and makes_own):
            fields = [each.parameter for each in self.fields if each.in_constructor]
            shown = [each for each in fields if not each.name.startswith("_")]
            return [each for each in shown if each.kind != "k"] + [each for each in shown if each.kind == "k"]
        for name in ("__init__", "__new__"):
            if found := self._function(name):
                module, node = found
                return parameters_of(self.package, module, node, bound=True)
        return []

    def _function(self, name: str, *, own: bool = False) -> tuple[Module, Function] | None:
        for each in self.line[: 1 if own else None]:
            for node in each.node.body:
                if isinstance(node, Function) and node.name == name:
                    return each.definition.module, node
        return None

    @functools.cached_property
    def fields(self) -> list[_Field]:
        """Of a struct, a dataclass, a named tuple or a dict of options: what it holds, those of bases first."""
        found: dict[str, _Field] = {}
        for each in reversed(self.line):
            if each.definition.full_name in HIDDEN_BASES:
                continue
            for one in each._own_fields():
                found[one.parameter.name] = one
        return list(found.values())

    def _own_fields(self) -> Iterator[_Field]:
        made = _dataclass(self.node)
        keywords_only = _keyword(self.node.keywords if made is None else made, "kw_only") is True
        module = self.definition.module
        for node, doc in attribute_docs(self.node.body):
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            annotation = annotation_text(module, node.annotation)
            if annotation.startswith(("ClassVar", "typing.ClassVar")):
                continue
            default, is_argument = self._default(node.value)
            yield _Field(
                parameter=Parameter(
                    name=node.target.id,
                    annotation=annotation,
                    default=default,
                    kind="k" if keywords_only else "",
                    doc=doc,
                ),
                node=node,
                module=module,
                in_constructor=is_argument,
            )

    def _default(self, value: ast.expr | None) -> tuple[str | None, bool]:
        """The default of a field, and whether the constructor takes the field at all."""
        if value is None:
            return None, True
        if isinstance(value, ast.Call) and ast.unparse(value.func).rpartition(".")[2] == "field":
            given = {keyword.arg: keyword.value for keyword in value.keywords}
            is_argument = _keyword(value.keywords, "init") is not False
            if "default" in given:
                return default_text(self.package, self.definition.module, given["default"]), is_argument
            return (LEFT_OUT if "default_factory" in given else None), is_argument
        return default_text(self.package, self.definition.module, value), True

    # --- has and does ---

    @functools.cached_property
    def members(self) -> list[Member]:
        """Its public members in the order of the source, those of merged bases last."""
        found: dict[str, Member] = {}
        for each in self.merged:
            for member in map(self._filled_in(each), each._own_members()):
                known = found.get(member.name)
                if known is None:
                    found[member.name] = member
                elif not known.doc and member.doc:
                    found[member.name] = dataclasses.replace(known, doc=member.doc)
        above = {member.name for base in self.named_bases for member in base.all_members}
        return [member for member in found.values() if member.name not in above or member.kind == "value"]

    def _filled_in(self, base: Class) -> Callable[[Member], Member]:
        """What makes `Engine` of the `E` of a base, where this class says `Base[Engine]`."""
        variables = [_subscript(each) for each in base.node.bases if ast.unparse(each).startswith("Generic[")]
        given = [_subscript(each) for each in self.node.bases if self._is(each, base)]
        if not variables or not given or len(variables[0]) != len(given[0]):
            return lambda member: member
        meant = dict(zip(variables[0], given[0], strict=True))

        def filled(text: str) -> str:
            return re.sub(r"\w+", lambda word: meant.get(word[0], word[0]), text)

        return lambda member: dataclasses.replace(
            member, annotation=filled(member.annotation), signatures=tuple([filled(each) for each in member.signatures])
        )

    def _is(self, expression: ast.expr, base: Class) -> bool:
        named = expression.value if isinstance(expression, ast.Subscript) else expression
        if not isinstance(named, ast.Name):
            return False
        return self.package.find(self.definition.module, named.id) == base.definition

    @property
    def all_members(self) -> list[Member]:
        """Also those of bases that have entries of their own."""
        return self.members + [member for base in self.named_bases for member in base.all_members]

    def _own_members(self) -> Iterator[Member]:
        yield from self._attributes(self.node.body)
        functions: dict[str, list[Function]] = {}
        for node in self.node.body:
            if isinstance(node, Function):
                functions.setdefault(node.name, []).append(node)
        if "__init__" in functions:
            yield from self._attributes(functions["__init__"][-1].body, of="self")
        for name, nodes in functions.items():
            if not name.startswith("_") or name in OPERATIONS:
                yield self._method(name, [node for node in nodes if not _is_setter(node)])

    def _attributes(self, body: Sequence[ast.stmt], *, of: str = "") -> Iterator[Member]:
        """The variables that these statements make, of the class or of `self`."""
        module = self.definition.module
        is_enum = self.kind == "enum"
        for node, doc in attribute_docs(body):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            if of:
                if not isinstance(target, ast.Attribute) or ast.unparse(target.value) != of:
                    continue
                name = target.attr
            else:
                if not isinstance(target, ast.Name):
                    continue
                name = target.id
            annotated = node.annotation if isinstance(node, ast.AnnAssign) else None
            if name.startswith("_") or (annotated is None and not is_enum):
                continue
            annotation = annotation_text(module, annotated)
            annotation = re.sub(r"^(?:ClassVar|Final)(?:\[(.*)\])?$", r"\1", annotation)
            yield Member(
                name=name,
                kind="value" if is_enum else "attribute",
                module=module,
                doc=doc,
                annotation=annotation,
                default=None if of or node.value is None else self._default(node.value)[0],
                annotations=() if annotated is None else (annotated,),
            )

    def _method(self, name: str, nodes: Sequence[Function]) -> Member:
        last = nodes[-1]
        module = self.definition.module
        decorators = {ast.unparse(each).rpartition(".")[2] for each in last.decorator_list}
        annotations = tuple([each for node in nodes for each in annotations_of(node)])
        doc = next((found for node in reversed(nodes) if (found := docstring(node))), "")
        if decorators & {"property", "cached_property"}:
            return Member(
                name=name,
                kind="property",
                module=module,
                doc=doc,
                annotation=annotation_text(module, last.returns),
                annotations=annotations,
            )
        kind = next((each for each in ("classmethod", "staticmethod") if each in decorators), "method")
        bound = kind != "staticmethod"
        return Member(
            name=name,
            kind=kind,
            module=module,
            doc=doc,
            signatures=tuple(signatures_of(self.package, module, nodes, bound=bound)),
            parameters=tuple(parameters_of(self.package, module, last, bound=bound)),
            is_async=isinstance(last, ast.AsyncFunctionDef),
            annotations=annotations,
        )

    @property
    def constructor_annotations(self) -> list[tuple[Module, ast.expr]]:
        """Where the types that its constructor names are found."""
        if self.kind in {"struct", "namedtuple", "dataclass", "typeddict"}:
            return [(each.module, each.node.annotation) for each in self.fields]
        found = self._function("__init__")
        return [] if found is None else [(found[0], each) for each in annotations_of(found[1])]

    @property
    def next_step(self) -> str:
        """Of an error, what it tells people to do where its raiser has nothing better to say."""
        for each in self.line:
            for node, _ in attribute_docs(each.node.body):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                if isinstance(target, ast.Name) and target.id == "next_step" and isinstance(node.value, ast.Constant):
                    return str(node.value.value)
        return ""


def _subscript(expression: ast.expr) -> list[str]:
    """What stands in the brackets."""
    if not isinstance(expression, ast.Subscript):
        return []
    inner = expression.slice
    return [ast.unparse(each) for each in (inner.elts if isinstance(inner, ast.Tuple) else [inner])]


def _keyword(keywords: Sequence[ast.keyword], name: str) -> object:
    for keyword in keywords:
        if keyword.arg == name and isinstance(keyword.value, ast.Constant):
            return keyword.value.value
    return None


def _dataclass(node: ast.ClassDef) -> Sequence[ast.keyword] | None:
    """What the class tells the decorator `dataclass`; None if it is not one."""
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(called).rpartition(".")[2] == "dataclass":
            return decorator.keywords if isinstance(decorator, ast.Call) else []
    return None


def _has_init(node: ast.ClassDef) -> bool:
    return _keyword(_dataclass(node) or [], "init") is not False


def _is_setter(node: Function) -> bool:
    return any(ast.unparse(each).endswith((".setter", ".deleter")) for each in node.decorator_list)
