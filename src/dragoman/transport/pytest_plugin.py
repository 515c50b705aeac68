"""The pytest fixture `dragoman_tape`: a tape for each test.

pytest loads this plugin in every run once dragoman is installed, so it imports almost nothing before the fixture is
used.

    def test_weather(dragoman_tape):
        transport = dragoman_tape.transport(SocketTransport)

The first run records, later runs replay. `--dragoman-tape=record` records again; `--dragoman-tape=replay` never calls a
server and is the default if the variable CI is set.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

if TYPE_CHECKING:
    from .tape import Mode, Tape

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("dragoman").addoption(
        "--dragoman-tape",
        choices=("record", "replay", "auto"),
        default=os.environ.get("DRAGOMAN_TAPE", "replay" if os.environ.get("CI") else "auto"),
        help="what the fixture dragoman_tape does: record again, replay only, or (auto) record tests without a tape",
    )


@pytest.fixture
def dragoman_tape(request: pytest.FixtureRequest) -> Tape:
    """The tape of this test: `tapes/<module>/<test>.jsonl` next to the test file.

    Values of environment variables with names such as API_KEY are refused.
    """
    from .tape import Tape

    node: pytest.Item = request.node
    mode = cast("Mode", request.config.getoption("--dragoman-tape"))
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", node.name).strip("-")
    path = Path(node.path).parent / "tapes" / Path(node.path).stem / f"{name}.jsonl"
    secrets = [value for key, value in os.environ.items() if _SECRET_NAME.search(key) and len(value) >= 8]
    return Tape(path, mode=mode, secrets=secrets)
