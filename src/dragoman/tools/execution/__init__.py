"""Carrying out tool calls: the executor and what it is made of.

executor.py        what callers see; the quick way for simple tools
one_tool.py        run one tool by its name, the shortest way
procedure.py       what happens to one call, step by step, without I/O
effects.py         what a procedure asks for: call this function, wait so long
batch.py           many calls at once: the scheduler
plain_backend.py   where functions run in a plain program (caller's thread, workers, one loop thread)
async_backend.py   where functions run on an event loop
threads.py         the threads themselves
run.py             what several batches have in common: deadline, budgets, cancellation, approvals
results.py         from values and exceptions to results
log.py             the log line of a call
"""
