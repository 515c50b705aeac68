"""Models that tests have run are not kept in memory for long."""

from __future__ import annotations

import os

os.environ.setdefault("DRAGOMAN_LOCAL_IDLE", "30")
