"""The second half of an approval, in a process of its own: `python -m tests.chat.another_process model way base_url`.

Reads a snapshot, approves its pending call, goes on, and writes the snapshot of what came of it.
"""

from __future__ import annotations

import sys
from contextlib import suppress

from dragoman.conversation import ToolCall
from dragoman.errors import ConfigurationError
from dragoman.stores import snapshot_from_json, snapshot_to_json
from dragoman.tools import approve
from tests.chat.scenarios import delete, weather
from tests.chat.talking import WAYS


def main(model: str, way: str, base_url: str) -> None:
    kind, streamed = WAYS[way]
    talk = kind(model, [delete, weather], streamed=streamed, base_url=base_url, key="test-key")
    talk.do("restore", snapshot_from_json(sys.stdin.buffer.read()))
    (pending,) = talk.client.pending
    other = ToolCall(pending.call.id, pending.call.name, '{"path": "another"}')
    with suppress(ConfigurationError):  # an approval of other arguments is none
        talk.chat(None, approve(other))
        raise AssertionError
    assert talk.chat(None, approve(pending.call)).text == "Done."
    sys.stdout.buffer.write(snapshot_to_json(talk.do("save")))
    talk.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
