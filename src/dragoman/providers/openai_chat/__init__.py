"""The dialect of OpenAI's chat completions, and of all the servers that speak it too.

encode.py    a call to a request        history.py   its messages
decode.py    bytes to events            parts.py     what a reply can hold besides text
profiles.py  what models and servers can do
"""
