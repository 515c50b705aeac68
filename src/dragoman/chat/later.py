"""What only some clients and turns need, such as agents, typed answers and stores: loaded when it is first used."""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
