"""The arguments of tools: the schema that the model sees, and how its JSON becomes a call.

    reader.py       Reader and Arguments: decode JSON text as a value of a type, or as the arguments of a schema
    functions.py    the parameters of a function as arguments, and how it is called
    hints.py        which forms of hints are understood
    nodes.py        what they mean: the type that msgspec decodes, and the JSON Schema
    resolve.py      names in annotations, and the fields of classes
    docstrings.py   descriptions from docstrings
    json_schema.py  validation against a JSON Schema (the only import of the schema library)
    nulls.py        nulls that stand for absent properties
    problems.py     problems with arguments, in one line that a model can act on
    partial.py      JSON that is still arriving
    schemas.py      walk over schemas, measure them, normalise odd ones

Nothing is imported here: a program that defines no tools loads none of it.
"""
