from __future__ import annotations

import inspect
import pickle
import re

import pytest

from dragoman import errors
from dragoman.conversation import Conversation, Message, ToolResult
from dragoman.errors import DragomanError, ToolError

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, DragomanError)]
NEEDED: dict[type[DragomanError], dict[str, object]] = {
    errors.UnsupportedVersionError: {"found": 2, "supported": 1},
    errors.LimitReachedError: {"conversation": Conversation().plus(Message.user("hi")), "limit": "steps"},
    errors.StepLimitError: {"conversation": Conversation(), "limit": "steps"},
    errors.ToolAbortedError: {"results": (ToolResult("1", "f"),)},
}


def make(cls: type[DragomanError], **more: object) -> DragomanError:
    return cls("It broke.", **NEEDED.get(cls, {}), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_says_what_happened_and_what_to_do_next(cls: type[DragomanError]) -> None:
    error = make(cls)
    assert str(error).startswith("It broke.")
    if cls not in (ToolError, errors.ToolExecutionError):  # the tool writes their text
        assert error.hint
        assert error.hint in str(error)
    assert str(make(cls, hint="Do that.")) == "It broke. Do that."
    assert str(make(cls, hint="")) == "It broke."


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_can_be_pickled(cls: type[DragomanError]) -> None:
    error = make(cls, hint="Do that.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def test_the_tree_is_drawn_in_the_docstring() -> None:
    drawn = re.findall(r"^[ │├└─]*(\w+Error)\b", errors.__doc__ or "", re.MULTILINE)
    assert set(drawn) == {cls.__name__ for cls in CLASSES}
    depth = {name: (errors.__doc__ or "").split(name)[0].rpartition("\n")[2] for name in drawn}
    for cls in CLASSES:
        parent = cls.__mro__[1]
        if cls is not DragomanError:
            assert len(depth[parent.__name__]) < len(depth[cls.__name__])


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(TypeError, match="no field 'statsu'"):
        errors.ProviderError("It failed.", statsu=500)  # type: ignore[call-arg]
