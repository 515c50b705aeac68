"""The responses dialect, from the server's side.

request.py   what a request says, and what the provider would refuse in it
item.py      the output items of a reply
reply.py     a reply, whole and as events; errors inside a stream
"""

from dragoman.simulator.dialects.dialect import Dialect
from dragoman.simulator.dialects.openai_shared import bad_key, failure, headers, model, models, no_model

from .reply import failure_in_stream, failure_in_whole, frames, whole, with_unknown
from .request import check, hear

__all__ = ["DIALECT"]

DIALECT = Dialect(
    name="openai_responses",
    stream_type="text/event-stream; charset=utf-8",
    whole_type="application/json",
    hear=hear,
    check=check,
    whole=whole,
    frames=frames,
    failure=failure,
    failure_in_stream=failure_in_stream,
    failure_in_whole=failure_in_whole,
    with_unknown=with_unknown,
    bad_key=bad_key,
    models=models,
    model=model,
    no_model=no_model,
    headers=headers,
)
