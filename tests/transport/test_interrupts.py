"""Ctrl-C in the middle of plain turns; see interrupts.py for a long run."""

from __future__ import annotations

import pytest

from tests.rounds import rounds
from tests.transport.interrupts import interrupt_many

SEED = 0


@pytest.mark.slow
@pytest.mark.timeout(1200)  # beside other work it takes long
def test_a_program_goes_on_after_interrupts() -> None:
    wrong = interrupt_many(rounds(6000), seed=SEED)
    assert not wrong, "\n".join([f"seed {SEED}", *wrong])
