"""Runs inside the environment of the wheel check, with the installed wheel and the core dependencies only.

Arguments: the version that must be installed, then the names of all distributions that may be.
"""

import sys

import dragoman

LATER = ("argparse", "asyncio", "httptools", "jsonschema_rs", "pydantic")
"""What `import dragoman` leaves to the first use."""

too_early = sorted(set(LATER) & sys.modules.keys())
assert not too_early, f"`import dragoman` has loaded {', '.join(too_early)}"

version, *allowed = sys.argv[1:]
assert dragoman.__version__ == version, f"version {dragoman.__version__} is installed, not {version}"
assert "site-packages" in str(dragoman.__file__), f"imported from {dragoman.__file__}, not from the wheel"

for name in dir(dragoman):
    getattr(dragoman, name)

from importlib.metadata import distributions  # noqa: E402 - loads much; what it loads must not count above

installed = {str(distribution.name).lower().replace("_", "-") for distribution in distributions()}
assert installed <= set(allowed), f"more than the core is installed: {', '.join(sorted(installed - set(allowed)))}"

print(f"dragoman {version}: {len(dir(dragoman))} public names, with {', '.join(sorted(installed))}")
