"""How large a strict schema may be.

Owns: counting what providers count, and comparing it with their limits.
Must not know: how a schema is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .rules import Rules
from .words import Schema, is_array, is_object, kind_of

__all__ = ["excesses"]


class Sizes(Struct):
    """What a provider counts in a schema."""

    properties: int = 0
    values: int = 0
    characters: int = 0
    depth: int = 0
    optional: int = 0
    unions: int = 0
    longest: int = 0

    def of_one(self, rules: Rules) -> tuple[tuple[str, int, int | None], ...]:
        """What is limited in each schema: what it is, how many, and how many may be."""
        return (
            ("properties", self.properties, rules.most_properties),
            ("levels of nesting", self.depth, rules.deepest),
            ("listed values", self.values, rules.most_values),
            ("characters in one list of values", self.longest, rules.longest_values),
            ("characters in names and values", self.characters, rules.most_characters),
        )

    def of_all(self, rules: Rules, schemas: int) -> tuple[tuple[str, int, int | None], ...]:
        """What is limited in all schemas of a request together."""
        return (
            ("strict schemas", schemas, rules.most_schemas),
            ("optional properties", self.optional, rules.most_optional),
            ("properties of more than one type", self.unions, rules.most_unions),
        )

    def count(self, schema: object, depth: int) -> None:
        """Add one schema and what it contains."""
        if not is_object(schema):
            return
        if "properties" in schema or "items" in schema:
            self.depth = max(self.depth, depth)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if is_array(values):
            length = sum(len(value) for value in values if isinstance(value, str))
            self.values += len(values)
            self.characters += length
            if len(values) > 250 and all(kind_of(value) == "string" for value in values):
                self.longest = max(self.longest, length)
        if is_array(schema.get("type")) or "anyOf" in schema:
            self.unions += 1
        if is_object(properties := schema.get("properties")):
            self.properties += len(properties)
            required = schema.get("required")
            self.optional += len(properties) - (len(required) if is_array(required) else 0)
            self.characters += sum(map(len, properties))
            for sub in properties.values():
                self.count(sub, depth + 1)
        self.count(schema.get("items"), depth + 1)
        if is_array(branches := schema.get("anyOf")):
            for branch in branches:
                self.count(branch, depth)
        if is_object(definitions := schema.get("$defs")):
            self.characters += sum(map(len, definitions))
            for definition in definitions.values():
                self.count(definition, 1)


def excesses(schemas: Sequence[Schema], rules: Rules) -> list[str]:
    """The limits that one strict schema, or all those of one request together, are beyond."""
    together = Sizes()
    found: dict[str, None] = {}
    for schema in schemas:
        sizes = Sizes()
        sizes.count(schema, 1)
        found.update(dict.fromkeys(_beyond(sizes.of_one(rules))))
        together.count(schema, 1)
    found.update(dict.fromkeys(_beyond(together.of_all(rules, len(schemas)))))
    return list(found)


def _beyond(counted: tuple[tuple[str, int, int | None], ...]) -> list[str]:
    return [f"{number} {what}, at most {most} are allowed" for what, number, most in counted if most and number > most]
