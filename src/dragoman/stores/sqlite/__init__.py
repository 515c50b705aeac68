"""A store in one SQLite file: the default of the command line, with full-text search.

store.py        the store: each method is one transaction
reading.py      what a reading transaction does; search.py: the words of a search
writing.py      what a writing transaction does
schema.py       the tables, and how older ones are brought up to date
database.py     connections, transactions, forks, and a file that goes away
troubles.py     SQLite's errors as ours
"""

from .store import SqliteStore

__all__ = ["SqliteStore"]
