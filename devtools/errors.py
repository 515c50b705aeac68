"""The one exception that dev.py turns into a message and an exit code."""


class DevelopmentError(Exception):
    """Something outside the code is in the way. The text says what happened and what to do next."""
