"""Engines: a model's reply to a conversation, whatever stands behind it.

engine.py         the Engine and AsyncEngine protocols; a model behind HTTP (its twin: async_engine.py)
factory.py        engines by name, and third parties' providers
keys.py           which key may go to which host     secret.py    a key that does not print itself
connection.py     a model at a provider, and a call made ready
model_call.py     one call as a generator of effects: send, read, decode, retry
plain.py          its driver for plain programs      on_loop.py   … for event loops
reply.py          the message and the account of the call
scripted.py       a test double                      media.py     reading attached files
"""
