from __future__ import annotations

from dragoman.conversation import Message, ToolCall, message_to_json
from dragoman.errors import ToolExecutionError
from dragoman.tools.call import failure, success

CALL = ToolCall("1", "give")


def test_text_that_utf8_cannot_carry_is_made_visible() -> None:
    result = success(CALL, "caf\udce9 für 2 €", 0.0)
    assert result.text == "caf\\udce9 für 2 €"
    message_to_json(Message.tool([result, failure(CALL, ToolExecutionError("\ud800"), 0.0)]))
