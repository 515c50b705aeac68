"""Arrays whose items differ by position, for providers that do not know them.

Owns: rewriting them as arrays of items that may each be of any of the kinds.
Must not know: which providers those are.
"""

from __future__ import annotations

from .node import Node, alike, alternatives
from .notes import Notes, joined

__all__ = ["without_positions"]


def without_positions(node: Node, notes: Notes, *, length: bool) -> Node:
    """The node with `items` instead of `prefixItems`. `length`: whether the number of items can be limited."""
    exact = length and all(alike(item, node.prefix[0]) for item in node.prefix)
    limits = dict(node.limits)
    if length:
        most = limits.get("maxItems")
        limits["maxItems"] = min(len(node.prefix), most) if isinstance(most, int) else len(node.prefix)
    told = dict(node.told)
    if exact:
        notes.rewritten(f"{node.at}/prefixItems", "written as items")
    else:
        notes.lost(f"{node.at}/prefixItems", "written as items, in no fixed order")
        kinds = ", ".join(_kind(item) for item in node.prefix)
        told["description"] = joined(told.get("description"), f"Items by position: {kinds}.")
    return node.with_changes(told=told, limits=limits, prefix=(), items=alternatives(node.prefix, node.at))


def _kind(item: Node) -> str:
    """A schema in a word or two."""
    if item.ref is not None:
        return item.ref.rpartition("/")[2]
    return " or ".join(item.plausible_types) or str(item.told.get("title", "any value"))
