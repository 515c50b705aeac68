"""Where things are."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = ROOT / "pyproject.toml"
SOURCES = ROOT / "src"
REQUIREMENTS = ROOT / "requirements"
DEV = ROOT / ".dev"
CACHE = DEV / "cache"
SITE = DEV / "site"
