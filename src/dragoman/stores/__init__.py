"""Where conversations are kept: snapshots, the journal between them, and the stores for both.

snapshot.py      one point of a conversation, as a value; its id and its JSON form
journal.py       what happened since the newest snapshot, and how to go on from there
protocol.py      what a store is, in two colours, and the rules that every store keeps
listing.py       what a list shows; filters, cursors, pages and words, the same for every store
sealing.py       keys, AES-GCM, and which records of a store are sealed
file.py          FileStore; directory.py: writing its files safely, the lock
sql.py           the store of both databases; sql_schema.py: its tables and statements
sqlite.py        SqliteStore, MemoryStore: connections, forks, errors
postgres.py      PostgresStore; postgres_driver.py: psycopg
blocking.py      plain stores in code that is stepped; `resume`, `copy_conversations`
async_store.py   AsyncStore: any plain store for asyncio, in worker threads
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
