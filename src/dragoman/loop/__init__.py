"""The loop: ask the model, run the tools that it calls, ask again.

step.py decides what comes next, run.py is one run of it over the I/O of io.py, stream.py what callers iterate; beside
them limits, hooks, context policies and settings, and the ways to call it: helpers for a hand-written loop (calls.py,
helpers.py) and an object that binds a model and tools (orchestrator.py).
"""
