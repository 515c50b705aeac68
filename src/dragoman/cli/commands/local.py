"""`dragoman local`: the model on this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from dragoman.cli.arguments import Command, Group, Parser

if TYPE_CHECKING:
    from dragoman.cli.terminal import Terminal

__all__ = ["GROUP"]


def _bare(name: str) -> str:
    """The model's own name: `local:` before it is allowed."""
    return name.removeprefix("local:")


def _list_arguments(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.cli.tables import print_json, print_table
    from dragoman.engines.local.storage import StoredModel, models

    def state(model: StoredModel) -> str:
        if model.present:
            return "here"
        return f"{100 * model.fetched // model.size} % here" if model.fetched else "not fetched"

    found = models()
    if arguments.json:
        print_json(terminal, [{**_plain(model), "path": str(model.path)} for model in found])
        return 0
    rows = [
        (
            f"local:{model.name}{' (default)' if model.default else ''}",
            _size(model.size),
            state(model),
            model.about,
        )
        for model in found
    ]
    print_table(terminal, ("model", "size", "state", "about"), rows)
    terminal.note(f"Models are kept in {found[0].path.parent} (DRAGOMAN_MODEL_DIR moves them).")
    return 0


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _plain(model: object) -> dict[str, object]:
    from msgspec import structs

    return structs.asdict(model)  # pyright: ignore[reportArgumentType]


def _optional_name(parser: Parser) -> None:
    parser.add_argument(
        "model", nargs="?", default="", help="its name (see dragoman local list); by default the default model"
    )


def _pull(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.engines.local.models import model_named
    from dragoman.engines.local.progress import bar_if_terminal
    from dragoman.engines.local.storage import models, present, pull

    name = model_named(_bare(arguments.model)).name
    if not present(name):
        size = next(_size(model.download) for model in models() if model.name == name)
        terminal.note(f"dragoman: local:{name} is fetched now ({size}).")
    terminal.line(str(pull(name, bar_if_terminal(terminal.stderr))))
    return 0


def _name(parser: Parser) -> None:
    parser.add_argument("model", help="its name (see dragoman local list)")


def _remove(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.engines.local.storage import remove

    freed = remove(_bare(arguments.model))
    terminal.say(f"{freed / 1e6:,.0f} MB are free again." if freed else "It was not here.")
    return 0


def _bench(arguments: argparse.Namespace, terminal: Terminal) -> int:
    from dragoman.engines.local.factory import bench
    from dragoman.engines.local.progress import bar_if_terminal

    terminal.line(str(bench(_bare(arguments.model), progress=bar_if_terminal(terminal.stderr))))
    return 0


GROUP: Final = Group(
    "local",
    {
        "list": Command(
            "List local models and whether they are here.", _list, _list_arguments, ("dragoman local list",)
        ),
        "pull": Command(
            "Fetch a model, and say where it is. DRAGOMAN_MODEL_DIR moves it.",
            _pull,
            _optional_name,
            ("dragoman local pull", "dragoman local pull smollm2-135m"),
        ),
        "remove": Command("Remove a model's file.", _remove, _name, ("dragoman local remove smollm2-135m",)),
        "bench": Command("Measure how fast a model is here.", _bench, _optional_name, ("dragoman local bench",)),
    },
    default="list",
)
