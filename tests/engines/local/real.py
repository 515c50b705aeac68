"""What tests of real models share: their mark, which model is needed, and a look into the program that runs it."""

from __future__ import annotations

import json
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from dragoman.conversation import Conversation, Message
from dragoman.engines import MODELS
from dragoman.engines.local import server, storage
from dragoman.engines.local.storage import models_directory
from tests.cli.running import Surroundings

ROOT = Path(__file__).resolve().parents[3]
SMALL = "smollm2-135m"
STORY = Conversation("You tell stories.").plus(Message.user("Tell me a long story about a dog."))

real = [
    pytest.mark.local_model,
    pytest.mark.slow,
    pytest.mark.timeout(600),  # a model computes as fast as the machine does
    pytest.mark.skipif(find_spec("xllamacpp") is None, reason="the extra `local` is not installed"),
]


def needed(name: str) -> None:
    if not storage.present(name):
        pytest.skip(f"{name} is not in {models_directory()}: dragoman local pull {name}")


def quality() -> Any:
    """The program that measures models, as a module."""
    spec = spec_from_file_location("local_quality", ROOT / "bench" / "local_quality.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def running(context: int) -> server.ModelServer:
    """The program that runs the small model with this context."""
    (found,) = [
        each for each in server.running_models() if each.context == context and MODELS[SMALL].file in each.model
    ]
    return found


def at_work(context: int) -> dict[str, Any]:
    """What the program is doing, as it says itself."""
    program = running(context)
    asked = Request(f"{program.address}/slots", headers={"authorization": f"Bearer {program.key}"})
    with urlopen(asked, timeout=60) as answer:
        (slot,) = json.load(answer)
    return slot


def with_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Surroundings:
    """An empty home, and the models of this machine."""
    models = str(models_directory())
    home = tmp_path / "home"
    home.mkdir()
    surroundings = Surroundings(home, monkeypatch)
    surroundings.set(DRAGOMAN_MODEL_DIR=models)
    return surroundings
