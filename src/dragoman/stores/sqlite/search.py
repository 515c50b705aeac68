"""The condition of SQL that finds the words of a search.

Owns: how words become a condition on `message_text`.
Must not know: which text of a message can be found (see stores/searching.py), and how lists are made.

SQLite's index of three letters at a time answers for words of three letters and more. What it finds is looked at again,
and shorter words are looked for in what is left: the index folds letters by rules of its own.
"""

from __future__ import annotations

import sqlite3

from dragoman.stores.searching import search_words

__all__ = ["found_by", "has_index"]


def found_by(connection: sqlite3.Connection, text: str) -> tuple[str, list[str]]:
    """The condition on `message_text` for this text, and its parameters; no words find nothing."""
    words = search_words(text.encode("utf-8", "replace").decode())
    if not words:
        return "0", []
    indexed = [word for word in words if len(word) >= 3] if has_index(connection) else []
    conditions = ["message_text MATCH ?"] if indexed else []
    query = [" AND ".join(['"' + word.replace('"', '""') + '"' for word in indexed])] if indexed else []
    conditions += ["instr(t.text, ?) > 0"] * len(words)
    return " AND ".join(conditions), [*query, *words]


def has_index(connection: sqlite3.Connection) -> bool:
    """Whether the file was made by an SQLite that has full-text search."""
    [sql] = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'message_text'").fetchone() or ("",)
    return "fts5" in str(sql)
