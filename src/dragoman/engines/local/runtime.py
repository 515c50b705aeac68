"""The runtime of local models (llama.cpp): whether it can be loaded, and the library that slim systems lack.

It is tried in a process of its own, before a model is downloaded and after a server could not load it. Its wheel needs
GCC's OpenMP library, which slim images of Linux leave out. Then that one file is taken from a small package, as the
parts of models are: the package is only unpacked, and the file's checksum is in the table below.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import signal
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from dragoman._programs import find_program, start_python
from dragoman._stop import sleep
from dragoman.directories import cache_directory
from dragoman.engines.keys import PYTHON, child_environment
from dragoman.errors import LocalModelError

from .models import Part
from .storage import append_part, locked, partial_of

INSTALL: Final = "pip install 'dragoman[local]'"
_OWN_VARIABLES: Final = ("CUDA_", "GGML_", "GOMP_", "HIP_", "KMP_", "LLAMA_", "OMP_", "ROCR_", "VK_", *PYTHON)
_POLL_SECONDS: Final = 0.02

_OPENMP: Final = "libgomp.so.1"
_PARTS: Final = {
    "x86_64": Part(
        package="treelite",
        version="4.8.1",
        sha256="fc63ee75e5b262a8b68cb141af169daf702f6da96fc0c661795c49ac75a04607",
        download=924_776,
        member="treelite.libs/libgomp-e985bcbb.so.1.0.0",
        member_sha256="a43904e4fa297301d4640dc1bb3c8a3480b406f99e498eba9b1914b68aab604a",
        size=253_289,
    ),
    "aarch64": Part(
        package="treelite",
        version="4.8.1",
        sha256="f18eb03f942f414f7a2eca9d8ee1700dbba855dd5448eae73a330336b41606d3",
        download=878_091,
        member="treelite.libs/libgomp-a49a47f9.so.1.0.0",
        member_sha256="43642df04bdf20f9b4122d336ef3e2e6a486c536e614159ac0e981a901d54537",
        size=343_345,
    ),
}
"""Where the OpenMP library of a processor is. Any Python's pip can download these wheels; they need glibc 2.28."""

# --- whether it can be loaded -----------------------------------------------------------------------------------------


def ensure_runtime() -> None:
    """Raise LocalModelError unless the runtime can be loaded here; a missing library is fetched if it can be."""
    if find_spec("xllamacpp") is None:
        message = "The runtime for local models is not installed."
        raise LocalModelError(message, reason="not_installed", hint=f"Install it: {INSTALL}")
    error = _try()
    if error is not None and _OPENMP in error.message and _fetched():
        error = _try()
    if error is not None:
        raise error


def _try() -> LocalModelError | None:
    """Load the runtime in a process of its own. Returns the error if it cannot be loaded."""
    with tempfile.TemporaryFile() as output:
        try:
            child = start_python(
                *("-c", "import xllamacpp"),
                environment=runtime_environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        except OSError as error:
            message = f"The runtime for local models cannot be tried: {error.strerror or error}."
            return LocalModelError(message, reason="failed", hint="Check sys.executable of this program.")
        try:
            while child.poll() is None:
                sleep(_POLL_SECONDS)
        finally:
            child.kill()
            child.wait()
        if child.returncode == 0:
            return None
        if child.returncode == -signal.SIGILL:
            return unsupported_processor()
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    why = lines[-1] if lines else f"loading it ended with status {child.returncode}"
    return cannot_be_loaded(why.removeprefix("ImportError: ")[:300])


def runtime_environment() -> dict[str, str]:
    """The variables of a process that loads the runtime: no secrets, and where the fetched library is, if it is."""
    # Threads that spin while they wait slow down the one that works.
    environment = {"OMP_WAIT_POLICY": "PASSIVE"} | child_environment(os.environ, own=_OWN_VARIABLES)
    part, library = _PARTS.get(platform.machine()), _library()
    if part is not None and _is_whole(part, library):
        paths = [*filter(None, [environment.get("LD_LIBRARY_PATH")]), str(library.parent)]
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return environment


# --- what is said if not ----------------------------------------------------------------------------------------------

_MISSING: Final = re.compile(r"(lib[\w.+-]+\.so[\w.]*): (?:cannot open shared object file|No such file or directory)")
_PACKAGES: Final = {
    # a system, or one that it is like; a program that installs, and the packages that have GCC's two libraries
    "debian": ("apt-get install", {_OPENMP: "libgomp1", "libstdc++.so.6": "libstdc++6"}),
    "alpine": ("apk add", {_OPENMP: "libgomp", "libstdc++.so.6": "libstdc++"}),
    "arch": ("pacman -S", {_OPENMP: "gcc-libs", "libstdc++.so.6": "gcc-libs"}),
    "suse": ("zypper install", {_OPENMP: "libgomp1", "libstdc++.so.6": "libstdc++6"}),
    "fedora": ("dnf install", {_OPENMP: "libgomp", "libstdc++.so.6": "libstdc++"}),
    "rhel": ("dnf install", {_OPENMP: "libgomp", "libstdc++.so.6": "libstdc++"}),
}


def cannot_be_loaded(why: str) -> LocalModelError:
    """The error for what the loader said."""
    missing = _MISSING.search(why)
    hint = f"Install it again: {INSTALL}" if missing is None else _how_to_install(missing[1])
    message = f"The runtime for local models cannot be loaded: {why}"
    return LocalModelError(message, reason="not_installed", hint=hint)


def _how_to_install(library: str) -> str:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    for system in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        command, packages = _PACKAGES.get(system, ("", {}))
        if library in packages:
            program, _, verb = command.partition(" ")
            if program == "dnf" and find_program("dnf") is None:  # older systems and small images
                program = "microdnf" if find_program("microdnf") else "yum"
            return f"Install the library that it needs, as root: {program} {verb} {packages[library]}"
    return f"Install the library that it needs: the package of your system that has {library}."


def unsupported_processor() -> LocalModelError:
    message = "This machine's processor lacks instructions that the runtime for local models needs."
    hint = "Use another machine or a provider's model."
    return LocalModelError(message, reason="unsupported_processor", hint=hint)


# --- the library that may be missing ----------------------------------------------------------------------------------


def _library() -> Path:
    return cache_directory() / "libraries" / _OPENMP


def _is_whole(part: Part, library: Path) -> bool:
    """Whether the library is there, and is the one that was checked. It is code, so it is read each time."""
    try:
        return hashlib.sha256(library.read_bytes()).hexdigest() == part.member_sha256
    except OSError:
        return False


def _fetched() -> bool:
    """Fetch the library; it is small. Returns False if it cannot be had."""
    part, library = _PARTS.get(platform.machine()), _library()
    if part is None:
        return False
    try:
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        library.parent.chmod(0o700)  # fails if the directory belongs to another user
        with locked(library):
            if not _is_whole(part, library):
                fresh = partial_of(library)
                with fresh.open("wb") as target:
                    append_part(part, target, f".{library.name}.fetching-", lambda _phase, _done: None)
                fresh.replace(library)
    except (OSError, LocalModelError):
        return False
    return True
