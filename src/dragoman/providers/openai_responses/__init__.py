"""The dialect of OpenAI's Responses API, which other services speak too.

encode.py    a call to a request        history.py   its messages as input items
decode.py    bytes to events            profiles.py  what each model can do
"""
