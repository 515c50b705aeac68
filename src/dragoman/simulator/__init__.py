"""A local server that speaks the dialects of all providers, for tests without a key and without the network.

It uses nothing of the library but its values, and any client can talk to it, including the official SDKs.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
