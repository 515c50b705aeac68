"""The loop: ask the model, run the tools that it calls, ask again.

Owns: the decision what comes next (step.py), one run of it as a generator of effects (run.py) with a driver for each
colour (plain.py, on_loop.py), its limits, hooks, context policies and settings, and the ways to call it: helpers for a
hand-written loop (calls.py, helpers.py) and an object that binds a model and tools (orchestrator.py).
Must not know: stores, the chat client.
"""
