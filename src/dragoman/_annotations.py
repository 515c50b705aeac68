"""Reads what functions and classes declare, also where it names something that only type checkers know.

A name that is imported under TYPE_CHECKING does not exist while a program runs. Up to Python 3.13 its annotation has
to be a string. From 3.14 on annotations are evaluated when they are read, and such a name is a NameError unless they
are asked for with forward references.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import inspect


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """The signature of a function. An unknown name in an annotation is a string, or a ForwardRef.

    Raises TypeError or ValueError if it has none, and whatever its annotations raise.
    """
    import inspect  # slow to load, and the core client does without

    if sys.version_info < (3, 14):
        return inspect.signature(function)
    from annotationlib import Format

    return inspect.signature(function, annotation_format=Format.FORWARDREF)


def annotations_of(cls: type) -> Mapping[str, object]:
    """The annotations of a class, without those of its bases. An unknown name is a string, or a ForwardRef."""
    if sys.version_info < (3, 14):
        return vars(cls).get("__annotations__", {})
    from annotationlib import Format, get_annotations

    return get_annotations(cls, format=Format.FORWARDREF)
