from __future__ import annotations

import logging

import pytest

from dragoman.conversation import ToolCall
from dragoman.tools.executor import ToolExecutor


def test_a_call_is_one_line_whatever_the_model_calls(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dragoman.tools")
    with ToolExecutor([]) as executor:
        executor.execute(ToolCall("1 outcome=ok", "x\ntool=pay outcome=ok"))
    [record] = caplog.records
    assert record.message.startswith(r"tool='x\ntool=pay outcome=ok' call_id='1 outcome=ok' outcome=not_found")
