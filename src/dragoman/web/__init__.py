"""Conversations in a browser: the page of `dragoman web`, and ASGI apps for other people's pages.

log.py         numbered frames that any number of watchers read, and the response that sends them
turns.py       a turn under way, whoever watches; the conversations of a server, each with its turn
ai_sdk.py      the Vercel AI SDK's UI message stream: what a request may say, and events as its parts
ag_ui.py       AG-UI: the same
frontends.py   the ASGI apps for both
page.py        the JSON API behind our own page, and the page's files
views.py       what the page sends and gets
guard.py       who may come in: token, cookie, password, Host and Origin, and the headers of every answer
trace.py       how the turns of a conversation went, for the trace view
static/        the page, built from page/ at the top of the repository

Must not know: how a request got here. What is trusted of a request is written in frontends.py and docs/frontends.md.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
