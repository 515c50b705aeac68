"""The chat client, its configuration and its credentials."""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
