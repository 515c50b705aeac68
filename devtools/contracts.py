"""A contract type for import-linter. The one file here that imports more than the standard library: import-linter
itself loads it, from the environment that import-linter lives in."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from importlinter.contracts.forbidden import ForbiddenContract

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grimp import ImportGraph
    from importlinter import ContractCheck
    from importlinter.domain.imports import ModuleExpression


class ForbiddenWherePresent(ForbiddenContract):
    """Like `forbidden`, but it may name modules of the package that are not written yet.

    A rule can so be written down before the room it is about. An absent module counts as an empty one: it imports
    nothing and nothing imports it. From the day it exists it is checked like any other.
    """

    type_name = "forbidden_where_present"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        roots = tuple(f"{root}." for root in cast("Iterable[str]", self.session_options["root_packages"]))
        # A field of a contract holds its parsed value here; only its class attribute is the field itself.
        sources = cast("set[ModuleExpression]", self.source_modules)
        forbidden = cast("set[ModuleExpression]", self.forbidden_modules)
        for name in {module.expression for module in sources | forbidden if not module.has_wildcard_expression()}:
            if name.startswith(roots) and name not in graph.modules:
                graph.add_module(name)
        return super().check(graph, verbose)
