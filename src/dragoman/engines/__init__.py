"""Engines: a model's reply to a conversation, whatever stands behind it.

base.py         the Engine and AsyncEngine protocols, and a model behind HTTP in both colours
factory.py      engines by name, and third parties' providers
connection.py   a model at a provider, and a call made ready      media.py   reading attached files
call.py         one call: send, read, decode, retry; the streams that callers iterate
reply.py        the message and the account of the call
keys.py         keys that do not print themselves, and which may go to which host
scripted.py     a test double
claude_cli/     the `claude` program       local/    a model on this machine
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
