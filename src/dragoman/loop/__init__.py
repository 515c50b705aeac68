"""The loop: ask the model, run the tools that it calls, ask again.

step.py decides what comes next, run.py is one run of it over the I/O of io.py, which also has what callers iterate;
result.py is what came of it, settings.py has options and hooks, context.py the policies for long histories,
orchestrator.py the ways to call it.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
