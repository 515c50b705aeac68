"""The `claude` program on this machine as an engine: provider `claude-local`.

settings.py    how the program is run                 names.py     what it is called here
launch.py      a call → the program's arguments, environment and first line
dialogue.py    lines in → lines out, events, questions; mcp.py: our tools as it sees them
reading.py     its messages → the events of one reply
prompting.py   messages → what it is told; history.py: which part it knows already
failures.py    what went wrong → typed errors
call.py        one call as a generator of effects; pool.py: programs that wait for the next one
plain.py       the process for plain programs         on_loop.py   … on event loops
engine.py      the two engines' common part, and the plain one; async_engine.py the other

The loop stays ours. Where the model calls one of our tools, the reply ends, and the program waits until the next call
of the engine brings the results.
"""
