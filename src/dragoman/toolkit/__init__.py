"""Ready tools for a directory, with permission rules, skills, and responders for people.

ready.py        `toolkit`: the tools in one registry; `now`      base.py   what the tools share
workspace.py    the directory that tools work in; opens all its files
files.py                                  `Read`, `Write`, `Edit`
search.py, walk.py, match_worker.py       `Glob`, `Grep`
bash.py                                   `Bash`
fetch.py, addresses.py, page_text.py      `Fetch`
calculator.py                             `calculator`
responder.py    the person on the other side: console, callbacks, nobody; `react_emoji`, `send_update`
permissions/    which calls may run
skills/         `Skill`, `LoadSkillSupporting`
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
