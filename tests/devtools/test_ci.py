"""CI runs the checks as a fresh machine does."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TELLS_ITS_VARIABLES = """
import json, os, sys
if sys.argv[1:] == ["test"]:
    with open("seen.json", "w") as file:
        json.dump(dict(os.environ), file)
"""


def test_the_checks_see_nothing_of_the_shell_but_how_registries_are_reached(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "dev.py").write_text(TELLS_ITS_VARIABLES)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "npm").write_text("#!/bin/sh\n")
    (programs / "npm").chmod(0o755)
    (programs / "python3").symlink_to(sys.executable)
    kept = {
        "HOME": str(tmp_path),
        "PATH": os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)]),
        "LANG": "C.UTF-8",
        "CI": "",
        "PIP_CERT": "two words\nand a second line",
        "npm_config_registry": "r",
        "HTTPS_PROXY": "p",
        "NODE_EXTRA_CA_CERTS": "c",
    }
    dropped = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": "/x",
        "DRAGOMAN_MODEL": "m",
        "TERM": "dumb",
        "OPENAI_API_KEY": "k",
    }
    subprocess.run([tmp_path / ".ci" / "run"], env=kept | dropped, stdin=subprocess.DEVNULL, timeout=120, check=True)
    seen = json.loads((tmp_path / "seen.json").read_text())
    of_bash = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert {name: value for name, value in seen.items() if name not in of_bash} == kept
