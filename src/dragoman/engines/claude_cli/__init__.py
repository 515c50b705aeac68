"""The `claude` program on this machine as an engine: provider `claude-local`.

engine.py      one call: which program answers it, writing, reading; the engines, sync and async
launch.py      settings and a call → the program's arguments, environment and first line
protocol.py    lines in → lines out, events, questions; our tools as the program sees them
decode.py      the program's messages → the events of one reply, or typed errors
history.py     which messages a program knows, and how it gets the others
process.py     the process and its pipes

The loop stays ours. When the model calls one of our tools, the reply ends, and the program waits until the next call of
the engine brings the results.
"""
