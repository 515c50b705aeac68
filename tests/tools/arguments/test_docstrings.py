"""Docstrings of every style."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from dragoman.tools.arguments.docstrings import parse_docstring

GOOGLE = """Find flights.

    Prices are in euros.

    Args:
        origin (str): Where it starts.
            Use an airport code.
        limit: How many: at most ten.
        *rest: Ignored.

    Keyword Args:
        sort: How to sort.

    Returns:
        The flights.

    Raises:
        ValueError: If there is no such airport.
    """

NUMPY = """Find flights.

    Prices are in euros.

    Parameters
    ----------
    x, y : float
        Where it
        starts.
    limit : int, optional
        How many.

    Returns
    -------
    list
        The flights.
    """

SPHINX = """Find flights.

    Prices are in euros.

    :param origin: Where it
        starts.
    :type origin: str
    :param int limit: How many.
    :returns: The flights.
    """


BEGINNING = "Find flights.\n\nPrices are in euros.\n\n"
CASES = {
    "google": (
        GOOGLE,
        BEGINNING + "Returns:\n    The flights.\n\nRaises:\n    ValueError: If there is no such airport.",
        {
            "origin": "Where it starts.\nUse an airport code.",
            "limit": "How many: at most ten.",
            "rest": "Ignored.",
            "sort": "How to sort.",
        },
    ),
    "numpy": (
        NUMPY,
        BEGINNING + "Returns\n-------\nlist\n    The flights.",
        {"x": "Where it\nstarts.", "y": "Where it\nstarts.", "limit": "How many."},
    ),
    "sphinx": (SPHINX, BEGINNING + ":returns: The flights.", {"origin": "Where it\nstarts.", "limit": "How many."}),
    "parameters only": ("Args:\n    a: The first.", "", {"a": "The first."}),
    "types, quotes and more": (
        (
            "Do.\n\nArgs:\n    `a`: A.\n    f (Callable[[int], str], optional): Calls.\n\n        - one: 1\n"
            "    odd line\n    c:\n        C."
        ),
        "Do.",
        {"a": "A.", "f": "Calls.\n\n    - one: 1\nodd line", "c": "C."},
    ),
    "sphinx about a class": (":param a: See\n    :class:`B`.\n:raises: no", ":raises: no", {"a": "See\n:class:`B`."}),
    "parameters without a word": (":param a:\n:param b: B.", "", {"b": "B."}),
    "numpy to the end": ("Do.\n\nParameters\n----------\na : int\n    The first.", "Do.", {"a": "The first."}),
    "attributes of a class": ("A point.\n\nAttributes:\n    x: Right.", "A point.", {"x": "Right."}),
    "trailing blanks": ("Args: \n    x: the x\n", "", {"x": "the x"}),
    "none": (None, "", {}),
    # What has no parameters stays as it is.
    **{
        text: (text, text.rstrip(), {})
        for text in (
            "Just text. See :func:`other`.\n\nNote: nothing.",
            "One thought\nover two lines.",
            "",
            "Do.\n\nArgs:\n",
            "Args: none of them.",
            "Do.\n\nArgs:\n    all of them",
            "Parameters\n----------",
            ":param",
        )
    },
}


@pytest.mark.parametrize("name", CASES)
def test_styles(name: str) -> None:
    text, description, parameters = CASES[name]
    assert parse_docstring(text) == (description, parameters)


PIECES = ["Args:", "Parameters", "----------", ":param a: b", "@param a: b", "    a: b", "a : int", "", ":type", "\t"]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=12).map("\n".join))
def test_any_text_is_accepted(text: str) -> None:
    parse_docstring(text)
