"""Ready tools for a directory, the permission rules and skills that go with them, and the way to a person.

ready.py        `toolkit`: the tools in one registry; `now`      base.py   what each of them is made with
workspace.py    the directory that tools work in, and the only way to its files
files.py                                  `Read`, `Write`, `Edit`
search.py, walk.py, match_worker.py       `Glob`, `Grep`
bash.py                                   `Bash`
fetch.py, addresses.py, page_text.py      `Fetch`
calculator.py                             `calculator`
responder.py    who is on the other side: console, callbacks, nobody; `react_emoji`, `send_update`
permissions/    which calls may run
skills/         `Skill`, `LoadSkillSupporting`
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
