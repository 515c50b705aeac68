"""How processes begin: our own, which run this Python, and programs that the user names.

The working directory may be that of a stranger's repository, with a `pip.py`, a `typing.py` or a `git` in it. So our
own processes start in the root directory, import nothing from where they start, and get an environment without paths
that depend on it. Programs keep their directory, but are never searched there: relative entries of the PATH do not
count, nor does an empty one, which means the same as `.`.

Owns: starting our own processes, and finding programs. tests/test_programs.py lists every place that starts a process.
Must not know: what the processes do.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    import subprocess  # its import takes longer than that of all the rest

# --- our own processes ------------------------------------------------------------------------------------------------

_ROOT: Final = os.path.abspath(os.sep)
_PYTHON: Final = frozenset(
    [
        *("PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONIOENCODING", "PYTHONNOUSERSITE"),
        *("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONUSERBASE", "PYTHONUTF8"),
    ]
)
"""The variables of Python that our processes get: how it finds packages, and how it reads and writes. Others may name
modules to import, as PYTHONWARNINGS does."""
_OF_PATHS: Final = frozenset(
    [
        *("DYLD_FALLBACK_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH", "DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH"),
        *("PATH", "PYTHONHOME", "PYTHONPATH", "PYTHONUSERBASE"),
    ]
)
"""The variables that hold paths, of which only the absolute ones count."""


def start_python(
    *arguments: str,
    environment: Mapping[str, str],
    packages: bool = True,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    apart: bool = False,
) -> subprocess.Popen[bytes]:
    """Start this Python with these arguments. Raises OSError.

    Without `packages` it has the standard library alone. `apart`: signals of our terminal do not reach it.
    """
    import subprocess

    if not os.path.isabs(sys.executable or ""):
        raise OSError(errno.ENOENT, "sys.executable is not the path of a Python interpreter")
    return subprocess.Popen(  # noqa: S603 -- this Python, without a shell
        [sys.executable, *(_flags() if packages else ("-I", "-S")), *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        cwd=_ROOT,
        env=_clean(environment),
        start_new_session=apart,
    )


def _flags() -> Iterator[str]:
    """Nothing is imported from the working directory, and nothing from where this process does not import either."""
    yield "-P"
    if sys.flags.ignore_environment:
        yield "-E"
    if sys.flags.no_user_site:
        yield "-s"


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if not name.startswith("PYTHON") or name in _PYTHON}
    for name in _OF_PATHS & kept.keys():
        kept[name] = absolute_paths(kept[name])
        if not kept[name]:
            del kept[name]  # an empty one would mean the working directory
    return kept


_OPEN_BROWSER: Final = "import sys, webbrowser; webbrowser.open(sys.argv[1])"


def open_browser(address: str) -> None:
    """Open an address in the user's browser, and wait as long as the module `webbrowser` does.

    In a process of its own, because that module and the scripts that it starts search the whole PATH.
    """
    start_python("-c", _OPEN_BROWSER, address, environment=os.environ, packages=False).wait()


# --- programs that the user names -------------------------------------------------------------------------------------


def absolute_paths(paths: str) -> str:
    """A list of paths, such as PATH, without the entries that depend on the working directory."""
    return os.pathsep.join([entry for entry in paths.split(os.pathsep) if os.path.isabs(entry)])


def search_path(environ: Mapping[str, str]) -> str:
    """Where programs are searched. Never empty, which would mean the working directory."""
    return absolute_paths(environ.get("PATH", "")) or absolute_paths(os.defpath)


def find_program(name: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The path of a program, like shutil.which; a name is never searched in the working directory."""
    directories = search_path(os.environ if environ is None else environ).split(os.pathsep)
    for directory in [os.getcwd()] if os.path.dirname(name) else directories:
        for ending in _endings(name):
            path = os.path.join(directory, name + ending)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return path
    return None


def named_program(name: str, environ: Mapping[str, str]) -> str:
    """What to start for a name or path that the user gave; a path stays as it is. Raises FileNotFoundError."""
    if os.path.dirname(name):
        return name
    found = find_program(name, environ)
    if found is None:
        left_out = "PATH" in environ and environ["PATH"] != search_path(environ)
        why = " (relative entries of the PATH, such as '.', are not searched)" if left_out else ""
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT) + why, name)
    return found


def _endings(name: str) -> list[str]:
    if os.name != "nt":
        return [""]
    endings = [each for each in os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if each]
    return ["", *endings] if name.lower().endswith(tuple([each.lower() for each in endings])) else endings


def ignore_relative_path() -> None:
    """For a program that starts: neither it nor the libraries that it uses search programs in the working directory."""
    if "PATH" in os.environ and (cleaned := search_path(os.environ)) != os.environ["PATH"]:
        os.environ["PATH"] = cleaned
    if os.name == "nt":
        os.environ["NoDefaultCurrentDirectoryInExePath"] = "1"  # noqa: SIM112 -- the name that Windows gives it
