"""TOML files that people write: read with care, and with the line of every key.

file.py     reading one, and who else can write to it
lines.py    on which line each key stands
"""
