"""Conversations as workflows of Temporal (extra `temporal`): they survive machines, and any worker goes on with any.

payloads.py has what crosses the server and its form there, agents.py what a worker knows and its activities, turns.py
the loop inside a workflow, workflow.py the ready workflow, client.py the plugin and what callers use.
"""

from dragoman._door import open_door
from dragoman.errors import ConfigurationError

_load, __dir__ = open_door(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _load(name)
    except ImportError as error:
        if not (error.name or "").startswith("temporalio"):
            raise
        message = f"Temporal's SDK is not installed ({error})."
        raise ConfigurationError(message, hint="Install it with: pip install 'dragoman[temporal]'.") from None
