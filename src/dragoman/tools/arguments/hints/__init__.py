"""Type hints: what they mean to a model (JSON Schema) and how a model's JSON becomes values of them.

Owns: everything about types. `parse` turns a hint into nodes; a `node` tells the schema and reads values. The kinds of
nodes are in `scalars`, `choices`, `containers`, `records` and `pydantic_types`, with `limits` and `annotations` around
them. `classes` reads the fields of classes, `resolve` looks up names, `defaults` shows defaults, and `compile` puts it
together.
Must not know: functions and tools.
"""
