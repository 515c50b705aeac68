"""`dragoman local`: the model on this machine."""

from __future__ import annotations

import argparse

from dragoman.engines import (
    ModelServer,
    StoredModel,
    bar_if_terminal,
    model_named,
    models,
    pull,
    remove,
    running_models,
    stop_models,
)

from .arguments import Parser, add_json
from .output import print_list
from .terminal import Terminal


def declare(parser: Parser) -> None:
    """The commands about local models."""
    parser.default = "list"
    add_json(parser.add_command("list", _list, "List local models and whether they are here.", "dragoman local list"))
    about = "Fetch a model, and say where it is. DRAGOMAN_MODEL_DIR moves it."
    fetch = parser.add_command("pull", _pull, about, "dragoman local pull", "dragoman local pull smollm2-135m")
    named = "its name (see dragoman local list); by default the default model"
    fetch.add_argument("model", nargs="?", default="", help=named)
    about = "Remove a model's file."
    delete = parser.add_command("remove", _remove, about, "dragoman local remove smollm2-135m")
    delete.add_argument("model", help="its name (see dragoman local list)")
    about = "Show the models that are loaded. DRAGOMAN_LOCAL_IDLE says for how many seconds one is kept."
    add_json(parser.add_command("status", _status, about, "dragoman local status"))
    parser.add_command("stop", _stop, "Unload the models that are loaded.", "dragoman local stop")


def _list(arguments: argparse.Namespace, terminal: Terminal) -> int:
    found = models()
    print_list(terminal, found, _show, as_json=arguments.json)
    terminal.note(f"Models are kept in {found[0].path.parent} (DRAGOMAN_MODEL_DIR moves them).")
    return 0


def _show(model: StoredModel) -> dict[str, object]:
    part = f"{100 * model.fetched // model.size} % here" if model.fetched else "not fetched"
    return {
        "model": f"local:{model.name}{' (default)' if model.default else ''}",
        "size": _format_size(model.size),
        "state": "here" if model.present else part,
        "about": model.about,
    }


def _format_size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def _pull(arguments: argparse.Namespace, terminal: Terminal) -> int:
    name = model_named(arguments.model.removeprefix("local:")).name
    model = next(model for model in models() if model.name == name)
    if not model.present:
        terminal.note(f"dragoman: local:{name} is fetched now ({_format_size(model.download)}).")
    terminal.line(str(pull(name, bar_if_terminal(terminal.stderr))))
    return 0


def _remove(arguments: argparse.Namespace, terminal: Terminal) -> int:
    freed = remove(arguments.model.removeprefix("local:"))
    terminal.say(f"{freed / 1e6:,.0f} MB are free again." if freed else "It was not here.")
    return 0


def _status(arguments: argparse.Namespace, terminal: Terminal) -> int:
    loaded = [{"model": _name_of(each), "pid": each.pid, "context": each.context} for each in running_models()]
    print_list(terminal, loaded, dict, as_json=arguments.json, otherwise="No model is loaded. The next call loads one.")
    return 0


def _stop(_arguments: argparse.Namespace, terminal: Terminal) -> int:
    ended = stop_models()
    for each in ended:
        terminal.line(f"{_name_of(each)} is unloaded.")
    if not ended:
        terminal.say("No model was loaded.")
    return 0


def _name_of(server: ModelServer) -> str:
    names = [model.name for model in models() if str(model.path) == server.model]
    return f"local:{names[0] if names else server.model}"
