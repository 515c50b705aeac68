"""The directories on each platform."""

from __future__ import annotations

from pathlib import Path

import pytest

from dragoman.directories import (
    cache_directory,
    config_directory,
    data_directory,
    home_directory,
    state_directory,
)
from dragoman.errors import ConfigurationError

ALL = (config_directory, data_directory, cache_directory, state_directory)
HOME = {"HOME": "/home/me"}


@pytest.mark.parametrize(
    ("platform", "environ", "expected"),
    [
        ("linux", HOME, (".config/dragoman", ".local/share/dragoman", ".cache/dragoman", ".local/state/dragoman")),
        ("freebsd14", HOME, (".config/dragoman", ".local/share/dragoman", ".cache/dragoman", ".local/state/dragoman")),
        (
            "darwin",
            HOME | {"XDG_CONFIG_HOME": "/elsewhere"},
            (
                "Library/Application Support/dragoman",
                "Library/Application Support/dragoman",
                "Library/Caches/dragoman",
                "Library/Application Support/dragoman",
            ),
        ),
        (
            "win32",
            {"USERPROFILE": "/home/me"},
            (
                "AppData/Roaming/dragoman",
                "AppData/Local/dragoman",
                "AppData/Local/dragoman/Cache",
                "AppData/Local/dragoman",
            ),
        ),
    ],
)
def test_defaults_are_below_the_home_directory(
    platform: str, environ: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert tuple(each(environ, platform=platform) for each in ALL) == tuple(
        Path("/home/me") / each for each in expected
    )


def test_environment_variables_change_the_directories() -> None:
    xdg = {f"XDG_{name}_HOME": f"/{name}" for name in ("CONFIG", "DATA", "CACHE", "STATE")}
    assert [each(HOME | xdg, platform="linux") for each in ALL] == [
        Path(f"/{name}/dragoman") for name in ("CONFIG", "DATA", "CACHE", "STATE")
    ]
    windows = {"APPDATA": "R:\\roaming", "LOCALAPPDATA": "L:\\local"}
    assert config_directory(HOME | windows, platform="win32") == Path("R:\\roaming") / "dragoman"
    assert data_directory(HOME | windows, platform="win32") == Path("L:\\local") / "dragoman"


@pytest.mark.parametrize("named", ["", "relative/path", "~/x"])
def test_relative_paths_in_variables_are_ignored(named: str) -> None:
    assert config_directory(HOME | {"XDG_CONFIG_HOME": named}, platform="linux") == Path("/home/me/.config/dragoman")


def test_a_user_without_a_home_directory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    assert home_directory({}) == Path.home()

    def nobody() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", nobody)
    with pytest.raises(ConfigurationError, match="Set HOME"):
        home_directory({})
