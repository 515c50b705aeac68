"""A store in PostgreSQL, for fleets: many machines, one database (extra `postgres`).

store.py        the store for plain programs; async_store.py: for asyncio
requests.py     what each method means as work for the server
saving.py       what writing transactions do; spans.py: which rows make up a history
reading.py      what readers ask; grams.py: texts as numbers, for search
resealing.py    sealing a store again
schema.py       the tables, and how older ones are brought up to date
work.py         statements and transactions, said without doing them
plain.py        connections, and work carried out with them; on_loop.py: the same on event loops
driver.py       psycopg, wrapped
opening.py      options and errors that both colours share
troubles.py     the server's errors as ours, and which are worth another try
"""

from .async_store import AsyncPostgresStore
from .store import PostgresStore

__all__ = ["AsyncPostgresStore", "PostgresStore"]
