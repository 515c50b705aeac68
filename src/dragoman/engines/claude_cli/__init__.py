"""The `claude` program on this machine as an engine: provider `claude-local`.

engine.py      one call: which program answers it, speaking, listening; the engines of both colours, and by name
launch.py      settings and a call → the program's arguments, environment and first line
protocol.py    lines in → lines out, events, questions; our tools as the program sees them
decode.py      the program's messages → the events of one reply, or typed errors
history.py     which part of a conversation a program knows, and how it is told the rest
process.py     the process and its pipes, in both colours

The loop stays ours. Where the model calls one of our tools, the reply ends, and the program waits until the next call
of the engine brings the results.
"""
