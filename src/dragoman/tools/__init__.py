"""Tools: defined from functions, kept in registries, carried out by one executor.

definition.py   a function, or a schema and a handler, as a tool; arguments/ reads what the model gives it
registry.py     tools by name, of which a conversation may see a part
run.py          caps, time limits, retries and budgets; may a call run; what calls share; what a tool may know
executor.py     carries calls out; call.py is one call, batch.py many, threads.py where they run
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
