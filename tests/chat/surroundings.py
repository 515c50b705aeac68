"""A user, a project and their files, for the tests of the configuration."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from dragoman.chat import LoadedConfig, load_config


class Surroundings:
    """A home directory and a project below it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = self.home / "work" / "project"
        self.directory = self.project / "src" / "deep"
        self.directory.mkdir(parents=True)
        self.environ: dict[str, str] = {"HOME": str(self.home), "XDG_CONFIG_HOME": str(self.home / ".config")}

    @property
    def user_file(self) -> Path:
        return self.home / ".config" / "dragoman" / "config.toml"

    @property
    def project_file(self) -> Path:
        return self.project / "dragoman.toml"

    def user(self, text: str) -> Path:
        return write(self.user_file, text)

    def says(self, text: str) -> Path:
        return write(self.project_file, text)

    def trust(self, text: str = "") -> None:
        self.user(f'trusted_projects = ["{self.project}"]\n{textwrap.dedent(text)}')

    def load(self, **arguments: Any) -> LoadedConfig:
        return load_config(**{"environment": self.environ, "directory": self.directory, **arguments})


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    path.chmod(0o600)
    return path
