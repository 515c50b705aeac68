"""Nothing of MCP is loaded before it is used, and a missing SDK is said plainly."""

from __future__ import annotations

import subprocess
import sys


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout.strip()


def test_importing_dragoman_loads_neither_the_sdk_nor_an_event_loop() -> None:
    code = (
        "import sys, dragoman, dragoman.mcp; dragoman.mcp.StdioServer; dragoman.mcp.report_progress;"
        "print([m for m in ('mcp', 'mcp_types', 'asyncio', 'anyio', 'pydantic', 'uvicorn') if m in sys.modules])"
    )
    assert run(code) == "[]"


def test_without_the_sdk_the_error_names_the_extra() -> None:
    code = (
        "import sys\n"
        "class Nothing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('mcp', 'mcp_types'): raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Nothing())\n"
        "import dragoman.mcp\n"
        "try: dragoman.mcp.McpServers\n"
        "except dragoman.errors.ConfigurationError as error: print(error)\n"
    )
    assert "pip install 'dragoman[mcp]'" in run(code)
