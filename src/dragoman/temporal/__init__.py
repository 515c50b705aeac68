"""Conversations as workflows of Temporal (extra `temporal`): any worker can continue any conversation.

payloads.py has the values that cross the server and their form there, agents.py the agents and activities of a worker,
turns.py the loop inside a workflow, workflow.py the ready-made workflow, client.py the plugin and the callers' class.
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
