"""Claude's Messages API.

encode.py    a call to a request        history.py   its messages as content blocks
thinking.py  how thinking is asked for
decode.py    bytes to events            profiles.py  what each model can do
"""
