"""`Glob`: the files whose paths fit a pattern.

Owns: the tool and its caps.
Must not know: how a tree is walked (walk.py), what a pattern means (patterns.py).
"""

from __future__ import annotations

from contextlib import closing
from typing import Final

from dragoman.errors import ToolValidationError
from dragoman.toolkit.defining import ready
from dragoman.toolkit.workspace import Workspace, told
from dragoman.tools.context import ToolContext
from dragoman.tools.definition import AnyTool

from .patterns import PathPattern, PatternError
from .walk import Walk, ignore_files

__all__ = ["MAX_PATHS", "glob_tool", "one_line", "path_pattern"]

MAX_PATHS: Final = 1000


def path_pattern(pattern: str, argument: str) -> PathPattern:
    """The pattern, compiled; ToolValidationError if it is none."""
    try:
        return PathPattern(pattern)
    except PatternError as error:
        message = f"the argument {argument} cannot be used: {error}."
        raise ToolValidationError(message) from None


def glob_tool(workspace: Workspace, *, max_paths: int = MAX_PATHS) -> AnyTool:
    """The tool `Glob`."""

    @ready(name="Glob", filled=["pattern"], read_only=True, idempotent=True)
    def glob(context: ToolContext[object], pattern: str, path: str = ".", include_ignored: bool = False) -> str:
        """Find files by a pattern for their paths, such as `**/*.py` or `src/{a,b}/*.ts`. One path a line, in order.

        Args:
            pattern: Fits the whole path below `path`: `*` and `?` within a name, `**` for any directories.
            path: The directory to search, relative to the workspace or absolute.
            include_ignored: Also look at what .gitignore files leave out, and into .git.
        """
        wanted = path_pattern(pattern, "pattern")
        with workspace.directory(path or ".") as (directory, start), told(path):
            skip = len(start) + 1 if start else 0
            walk = Walk(
                directory,
                start,
                enter=lambda below: wanted.may_hold(below[skip:]),
                ignored=None if include_ignored else ignore_files(workspace, start),
                check=context.raise_if_cancelled,
            )
            found: list[str] = []
            more = False
            with closing(walk.files()) as files:
                for _, _, below in files:
                    if wanted.fits(below[skip:]):
                        more = len(found) == max_paths
                        if more:
                            break
                        found.append(one_line(below))
        return _reply(found, more=more, stopped=walk.stopped)

    return glob


def _reply(found: list[str], *, more: bool, stopped: bool) -> str:
    lines = found or ["[No file fits.]"]
    if more:
        lines = [*lines, f"[Cut after {len(found)} paths. To see others, use a narrower pattern or path.]"]
    elif stopped:
        lines = [*lines, "[Not everything was searched: it is too much. Use a narrower path.]"]
    return "\n".join(lines)


def one_line(path: str) -> str:
    """A path that cannot be taken for two, or for something else than a path."""
    return path if path.isprintable() else path.encode("unicode_escape").decode("ascii")
