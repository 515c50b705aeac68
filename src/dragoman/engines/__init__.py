"""Engines: a model's reply to a conversation.

base.py         Engine and AsyncEngine, streams
call.py         one call, of any engine and over HTTP: send, read, decode, retry      http.py   models behind HTTP
factory.py      engines by name, and third parties' providers
fallback.py     chains of models: if one fails, the next one answers                  health.py  their circuit breakers
limiter.py      client-side rate limits
credential.py   keys as values: fixed ones, and generated ones that are renewed
keys.py         which key may be sent to which host       clouds/   Azure, Vertex AI and Amazon
scripted.py     a test double
claude_cli/     the `claude` program       local/    a model on this machine
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
