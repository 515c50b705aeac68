"""A fleet on PostgreSQL: turns of conversations are submitted from anywhere and run by any worker.

turns.py         values: Turn, Outcome, events; requests and outcomes as JSON
database.py      connections, transactions, notifications, the tables
client.py        Fleet and AsyncFleet, for callers: submit, wait, approve, cancel, watch
worker.py        Worker, ProviderLimit: takes turns, renews their leases, records outcomes
carrying.py      Agent; one turn on a worker: its client, and the store that ends with its lease
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
