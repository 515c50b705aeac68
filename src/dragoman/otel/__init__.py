"""OpenTelemetry (extra `otel`): turns, calls of models and tools as spans and metrics, by the GenAI conventions.

switch.py    instrument and uninstrument; OpenTelemetry is loaded only by them
names.py     the version of the conventions, metrics, and values with other names there
spans.py     what the library does, as spans and metrics
content.py   prompts and answers, if asked for: of limited size, without keys
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
