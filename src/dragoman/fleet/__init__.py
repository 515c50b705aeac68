"""A fleet on PostgreSQL: turns of conversations are handed in from anywhere and carried out by any worker.

turns.py         values: Turn, Outcome, what is watched; what is asked and what came of it, as JSON
database.py      connections, transactions, notices, the tables
client.py        Fleet and AsyncFleet, for those who hand in, wait, answer, cancel and watch
worker.py        Worker, Agent, ProviderLimit: takes turns, keeps their leases, hands results back
carrying.py      one turn on a worker: the client it runs in, and the store that ends with its lease
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
