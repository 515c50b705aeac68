"""Conversations in a browser: the page of `dragoman web`, and an ASGI app for your own pages.

log.py         numbered frames for any number of watchers, and the response that sends them
turns.py       running turns; the open conversations of a server
ai_sdk.py      the Vercel AI SDK's UI message stream: requests and events
ag_ui.py       AG-UI: the same
frontends.py   the ASGI app for both, and what is trusted of a request
page.py        the JSON API behind our own page, and the page's files
views.py       what the page sends and gets
guard.py       access to the page: token, cookie, password, Host and Origin, and response headers
trace.py       the timeline of a conversation's turns
static/        the page, built from page/ at the top of the repository
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
