"""OpenTelemetry (extra `otel`): turns, calls of models and tools as spans and metrics, by the GenAI conventions.

switch.py    instrument and uninstrument; loads OpenTelemetry only when it is switched on
names.py     every name of a span, attribute and metric, and the version of the conventions that they follow
spans.py     what the library does, as spans and metrics
content.py   what was said, for those who switched that on: cut to a size, without keys
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
