"""A contract type for import-linter. Like griffe_doors.py it imports more than the standard library: import-linter
itself loads it, from the environment that import-linter lives in."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from importlinter import Contract, ContractCheck, output

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grimp import ImportGraph


class Doors(Contract):
    """Rooms, the packages right below the root, import from each other's doors: `dragoman.stores`, nothing inside."""

    type_name = "doors"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        roots = tuple(f"{root}." for root in cast("Iterable[str]", self.session_options["root_packages"]))
        wrong = [
            f"{importer} -> {imported}"
            for imported in sorted(graph.modules)
            if imported.startswith(roots) and imported.count(".") > 1
            for importer in sorted(graph.find_modules_that_directly_import(imported))
            if _room(importer) != _room(imported)
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        for line in cast("list[str]", check.metadata["wrong"]):
            output.print_error(f"- {line}: import it from the room, and add it to its __init__.pyi", bold=False)


def _room(module: str) -> str:
    return ".".join(module.split(".")[:2])
