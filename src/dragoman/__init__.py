"""One conversation, any model, tools that behave the same everywhere."""

from dragoman._door import open_door
from dragoman._version import __version__ as __version__

__getattr__, __dir__ = open_door(__name__, __file__)
