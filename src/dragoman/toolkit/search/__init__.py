"""Finding files by their names (`Glob`) and by what is in them (`Grep`).

patterns.py   path patterns such as src/**/*.py, matched in bounded time
ignore.py     .gitignore files
walk.py       the files below a directory, through open directories only
glob.py       the tool `Glob`
grep.py       the tool `Grep`
matcher.py    the child process in which regular expressions are tried, and which can be ended
worker.py     what runs in it
"""
