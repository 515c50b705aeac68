"""Arguments: parsers, and what is said about mistakes.

parser.py      Parser: argparse with one-line errors that name the nearest option
command.py     Command and Group, what a group of commands is made of
talking.py     the options of whatever talks to a model
"""

from .command import Command, Group
from .parser import Parser, UsageError, nearest

__all__ = ["Command", "Group", "Parser", "UsageError", "nearest"]
