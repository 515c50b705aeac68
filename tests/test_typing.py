"""What users' type checkers see: every example file passes in both, with every mistake in it noticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parent / "typing").glob("*.py"))
ROOT = Path(__file__).parents[1]
# An `ignore` that ignores nothing is an error in both: that is how the mistakes in the examples are asserted.
CHECKERS = {
    "basedpyright": ["basedpyright", "--level", "error", "--pythonpath", sys.executable],
    "mypy": ["mypy", "--strict", "--warn-unused-ignores", "--no-incremental", "--config-file", "pyproject.toml"],
}
PROJECT = """
[tool.basedpyright]
typeCheckingMode = "strict"
reportUnnecessaryTypeIgnoreComment = "error"
enableTypeIgnoreComments = false
reportUnusedExpression = false
"""


@pytest.mark.slow
@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples(checker: str, example: Path, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    copy = tmp_path / example.name
    copy.write_text(example.read_text())
    program, *options = CHECKERS[checker]
    command = [str(Path(sys.executable).with_name(program)), *options, str(copy)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
