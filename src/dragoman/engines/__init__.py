"""Engines: a model's reply to a conversation, whatever stands behind it.

base.py         Engine and AsyncEngine, streams
call.py         one call, of any engine and over HTTP: send, read, decode, retry      http.py   models behind HTTP
factory.py      engines by name, and third parties' providers
fallback.py     several models, of which the next one answers where one fails        health.py  their breakers
limiter.py      rate limits before they happen
credential.py   keys as values: typed ones, and ones that are made and renewed
keys.py         which key may go to which host        clouds/   Azure, Vertex AI and Amazon: addresses and identities
scripted.py     a test double        service.py   reading what a provider says of anything but answers
claude_cli/     the `claude` program       local/    a model on this machine
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
