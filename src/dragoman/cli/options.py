"""Options of the model, as `-o key value` says them.

Owns: from texts to the options of a configuration.
Must not know: what a model takes; its profile does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, get_args

from dragoman.chat.fields import FIELDS, parse_text
from dragoman.providers.options import Effort

from .arguments import UsageError, nearest

__all__ = ["model_options"]

_EFFORTS: Final = frozenset(get_args(Effort))


def model_options(pairs: Iterable[Sequence[str]]) -> dict[str, object]:
    """The options by name, as `load_config` takes them; `max_tokens` is one of them."""
    known = {path[1]: field for path, field in FIELDS.items() if path[0] == "options" and len(path) == 2}
    known["max_tokens"] = FIELDS["max_tokens",]
    found: dict[str, object] = {}
    for key, text in pairs:
        name = key.replace("-", "_")
        if name not in known:
            near = nearest(name, known)
            hint = f"Did you mean {near}?" if near else f"There are: {', '.join(sorted(known))}."
            raise UsageError(f"There is no option {key!r} of models.", hint=hint)
        found[name] = parse_text(known[name], _reasoning(text) if name == "reasoning" else text, f"-o {key}")
    return found


def _reasoning(text: str) -> str:
    """`high` and `2000` stand for the effort and the budget."""
    word = text.strip().lower()
    if word in _EFFORTS:
        return f'{{"effort": "{word}"}}'
    return f'{{"budget": {int(word)}}}' if word.isdecimal() else text
