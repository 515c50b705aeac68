"""The commands, one module for each group. Each has a GROUP, and loads what it needs when it runs."""
