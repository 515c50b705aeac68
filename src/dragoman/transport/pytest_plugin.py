"""A fixture for users' tests: `dragoman_tape`, a tape of its own for each test.

pytest finds this module by itself once dragoman is installed. It is loaded in every run of pytest, so it imports next
to nothing until the fixture is used.

    def test_weather(dragoman_tape):
        transport = dragoman_tape.transport(SocketTransport)

The first run records, later runs replay. `pytest --dragoman-tape=record` records anew, `--dragoman-tape=replay` never
asks a server, which is also what happens where the variable CI is set.
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
        help="what the fixture dragoman_tape does: record anew, replay only, or (auto) record what has no tape yet",
    )


@pytest.fixture
def dragoman_tape(request: pytest.FixtureRequest) -> Tape:
    """The tape of this test: `tapes/<module>/<test>.jsonl` beside the file of the test.

    No value of an environment variable whose name promises a secret can get onto it.
    """
    from .tape import Tape

    node: pytest.Item = request.node
    mode = cast("Mode", request.config.getoption("--dragoman-tape"))
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", node.name).strip("-")
    path = Path(node.path).parent / "tapes" / Path(node.path).stem / f"{name}.jsonl"
    secrets = [value for key, value in os.environ.items() if _SECRET_NAME.search(key) and len(value) >= 8]
    return Tape(path, mode=mode, secrets=secrets)
