"""Stores of conversations: snapshots, and the journal between them.

snapshot.py      one point of a conversation, its id and its JSON form
journal.py       what happened since the newest snapshot, and how to recover from both
document.py      a conversation as Markdown
protocol.py      the protocol of stores, and the rules that every store follows
listing.py       summaries, filters, cursors, pages and words, the same for every store
sealing.py       keys, AES-GCM, and how the records of a store are sealed
file.py          FileStore; directory.py: reading and writing its files safely, the lock
sql.py           what SQL stores share; sql_schema.py: their tables and statements
sqlite.py        SqliteStore, MemoryStore
postgres.py      PostgresStore; postgres_driver.py: psycopg
blocking.py      sync stores in async code; `resume`, `copy_conversations`
async_store.py   AsyncStore: a sync store for asyncio, in worker threads
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
