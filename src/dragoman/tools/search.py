"""Many tools: the model sees a few of them, and finds the others with `find_tools`.

The only state is the conversation: the results of `find_tools` in it determine which tools are offered, so a run that
continues elsewhere offers the same ones. New ones come after those offered before, in the order found.
Must not know: runs, providers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property, lru_cache
from math import inf, log
from typing import Annotated, Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw, Struct

from dragoman._decoding import decoder_of
from dragoman.conversation import Conversation, Json, OneTool, Text, ToolChoice, ToolResult, ToolSpec
from dragoman.errors import ToolConflictError

from .definition import AnyTool, tool, tools_of
from .registry import FIND_TOOLS, ToolSet
from .run import ToolConfig, ToolContext

_LIMIT: Final = 5
_MOST: Final = 20
_SHOWN_KINDS: Final = 15
_LONGEST_LINE: Final = 160
_LONGEST_KIND: Final = 30

# --- the index --------------------------------------------------------------------------------------------------------

_WORD: Final = re.compile(r"[^\W_]+")
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_SATURATION: Final = 1.2
_BY_LENGTH: Final = 0.75
"""The constants k1 and b of BM25."""
_NAME_COUNTS: Final = 3
"""The weight of a word in a name; in a description it is 1."""
_LEAST_PART: Final = 3


class _Parameters(Struct):
    properties: dict[str, Raw] = {}


_parameters: Final = decoder_of(_Parameters)


def _words(text: str) -> list[str]:
    """The stems of the words in a text or a name: `createIssues` has `creat` and `issu`."""
    words: list[str] = []
    for word in _WORD.findall(_HUMP.sub(" ", text)):
        folded = word.casefold()
        words.append(_stem(folded))
        if not folded.isascii():  # such as Chinese, which has no spaces between words
            words += [folded[start : start + 2] for start in range(len(folded) - 1)]
    return words


@lru_cache(maxsize=10_000)
def _stem(word: str) -> str:
    for ending in ("s", "ing", "ed", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= _LEAST_PART and not word.endswith("ss"):
            word = word.removesuffix(ending)
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > _LEAST_PART else word


class ToolIndex:
    """Finds tools by words: BM25 over names, tags, descriptions and names of parameters."""

    def __init__(self, specs: Iterable[ToolSpec]) -> None:
        counted = {spec.name: _count_words(spec) for spec in specs}
        self._names: list[str] = list(counted)
        self._places: dict[str, int] = {name: place for place, name in enumerate(counted)}
        self._postings: dict[str, list[tuple[int, float]]] = {}
        """For each word its tools, and its weight in each."""
        average = sum([words.total() for words in counted.values()]) / max(len(counted), 1)
        for place, words in enumerate(counted.values()):
            length = 1 - _BY_LENGTH + _BY_LENGTH * words.total() / (average or 1)
            for word, times in words.items():
                weight = times * (_SATURATION + 1) / (times + _SATURATION * length)
                self._postings.setdefault(word, []).append((place, weight))

    def search(self, query: str) -> list[str]:
        """The names of matching tools, best first; tools that the query names come before all others."""
        scores: dict[int, float] = {}
        for word in dict.fromkeys(_words(query)):
            postings = self._postings.get(word, ())
            rarity = log(1 + (len(self._names) - len(postings) + 0.5) / (len(postings) + 0.5))
            for place, weight in postings:
                scores[place] = scores.get(place, 0.0) + rarity * weight
        if not scores:  # a part of a name is better than nothing
            parts = [part for part in query.casefold().split() if len(part) >= _LEAST_PART]
            scores = {at: 1.0 for name, at in self._places.items() if any(part in name.casefold() for part in parts)}
        scores |= {self._places[name]: inf for name in (query, query.strip(), *query.split()) if name in self._places}
        return [self._names[place] for place in sorted(scores, key=lambda place: (-scores[place], place))]


def _count_words(spec: ToolSpec) -> Counter[str]:
    try:
        parameters = _parameters.decode(spec.parameters).properties
    except msgspec.MsgspecError:  # an odd schema
        parameters = {}
    counted = Counter(_words(f"{spec.description} {' '.join(spec.tags)} {' '.join(parameters)}"))
    for word in _words(spec.name):
        counted[word] += _NAME_COUNTS
    return counted


# --- the results of searches ------------------------------------------------------------------------------------------


class _Found(Struct):
    """The data of a `find_tools` result, beside its text."""

    found: tuple[str, ...] = ()


_found: Final = decoder_of(_Found)


def found_tools(conversation: Conversation) -> tuple[str, ...]:
    """The tools found in this conversation, in the order found."""
    names: dict[str, None] = {}
    for message in conversation.messages:
        if message.role == "tool":
            for result in message.tool_results:
                if result.name == FIND_TOOLS and result.structured is not None:
                    try:
                        names |= dict.fromkeys(_found.decode(result.structured.raw).found)
                    except msgspec.MsgspecError:  # a user's tool of that name
                        continue
    return tuple(names)


# --- a set of many tools ----------------------------------------------------------------------------------------------

_MOST_OFFERS: Final = 64
_DESCRIPTION: Final = (
    "Find further tools. You see only a few of your tools; there are {}. "
    "You can call the tools found from your next step on. Search before you say that something cannot be done."
)


class SearchableTools(ToolSet):
    """Tools with `find_tools` beside them."""

    own: frozenset[str] = frozenset([FIND_TOOLS])

    def __init__(self, source: Mapping[str, AnyTool], config: ToolConfig) -> None:
        if FIND_TOOLS in source:
            message = f"A tool of yours has the name {FIND_TOOLS!r}, which tool search needs."
            raise ToolConflictError(message, tool_name=FIND_TOOLS, hint="Rename it, or leave ToolConfig(search=…) out.")
        self.source: Mapping[str, AnyTool] = source
        self.config: ToolConfig = config
        allowed = config.allowed_tools
        self._specs: dict[str, ToolSpec] = {
            name: each.spec for name, each in source.items() if allowed is None or name in allowed
        }
        self._kinds: str = _list_kinds(self._specs.values())
        self._offers: dict[tuple[object, ...], tuple[ToolSpec, ...]] = {}
        (finder,) = tools_of(self)
        spec = msgspec.structs.replace(finder.spec, description=_DESCRIPTION.format(self._kinds))
        self._finder: AnyTool = msgspec.structs.replace(finder, spec=spec)
        self.by_name: Mapping[str, AnyTool] = {**source, FIND_TOOLS: self._finder}

    @cached_property
    def _index(self) -> ToolIndex:
        return ToolIndex(self._specs.values())

    @cached_property
    def _deferred(self) -> dict[str, ToolSpec]:
        return {name: msgspec.structs.replace(spec, deferred=True) for name, spec in self._specs.items()}

    def offer(self, conversation: Conversation, choice: ToolChoice, searched: int) -> tuple[ToolSpec, ...]:
        """The tools that the model sees: those always offered, the one that it must call, and those found.

        `searched` is how many tools the provider can search itself. If it is enough, the others follow as `deferred`;
        otherwise `find_tools` is offered.
        """
        found, deferred = found_tools(conversation), len(self._specs) <= searched
        needed = choice.name if isinstance(choice, OneTool) else ""
        key = (found, needed, deferred)
        offered = self._offers.get(key)
        if offered is None:
            always = self.config.always_offered
            first = [name for name in self._specs if name in always or name == needed]
            later = dict.fromkeys([name for name in found if name in self._specs and name not in first])
            specs = [self._specs[name] for name in first]
            specs += [] if deferred else [self._finder.spec]
            specs += [self._specs[name] for name in later]
            if deferred:
                specs += [spec for name, spec in self._deferred.items() if name not in first and name not in later]
            if len(self._offers) >= _MOST_OFFERS:
                self._offers.clear()
            offered = self._offers[key] = tuple(specs)  # the same object each time, for other caches
        return offered

    @tool(read_only=True, idempotent=True)
    def find_tools(
        self, context: ToolContext[Any], query: str, limit: Annotated[int, msgspec.Meta(ge=1, le=_MOST)] = _LIMIT
    ) -> ToolResult:
        """Find further tools.

        Args:
            query: What you want to do, in a few words, or the name of a tool.
            limit: The maximum number of tools to find.
        """
        known = {*self.config.always_offered, *found_tools(context.conversation)}
        hits = self._index.search(query)
        new = [name for name in hits if name not in known][:limit]
        lines = [f"- {name}: {_first_line(self._specs[name].description)}" for name in new]
        if new:
            lines.insert(0, "You can call these tools from now on:")
        if had := [name for name in hits[:limit] if name in known]:
            lines.append(f"You have these already: {', '.join(had)}.")
        if not hits:
            lines.append(f"No tool matches {query.strip()!r:.80}. There are {self._kinds}. Try other words.")
        found = Json(Raw(msgspec.json.encode(_Found(tuple(new)))))
        return ToolResult(context.call_id, FIND_TOOLS, (Text("\n".join(lines)),), structured=found)


def _list_kinds(specs: Collection[ToolSpec]) -> str:
    """The number of tools, and their kinds: by tags, or by the first word of their names."""
    kinds = Counter[str]()
    for spec in specs:
        first, *more = re.split(r"[_.:/-]+", spec.name, maxsplit=1)
        kinds.update(spec.tags or ([first] if first and more else []))
    shown = [f"{kind[:_LONGEST_KIND]} ({count})" for kind, count in kinds.most_common(_SHOWN_KINDS) if count > 1]
    more = ", …" if len(kinds) > len(shown) else ""
    return f"{len(specs):,} tools" + (f", of these kinds: {', '.join(shown)}{more}" if shown else "")


def _first_line(text: str) -> str:
    line, *_ = text.strip().splitlines() or ["no description"]
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"


_MADE: Final[WeakKeyDictionary[ToolSet, SearchableTools]] = WeakKeyDictionary()


def many_tools(tools: ToolSet, config: ToolConfig) -> SearchableTools | None:
    """The tools with `find_tools` beside them; None if the config lets the model see all of them."""
    if isinstance(tools, SearchableTools):
        return tools
    allowed = config.allowed_tools
    count = len(tools) if allowed is None else sum([name in allowed for name in tools.by_name])
    if config.search is None or count <= config.search:
        return None
    made = _MADE.get(tools)
    if made is None or made.source is not tools.by_name or made.config is not config:
        made = _MADE[tools] = SearchableTools(tools.by_name, config)
    return made
