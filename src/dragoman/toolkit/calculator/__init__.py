"""Arithmetic (`calculator`): tool.py, parser.py from text to value, arithmetic.py the operations."""
