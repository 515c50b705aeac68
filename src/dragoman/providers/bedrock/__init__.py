"""Amazon Bedrock's Converse and ConverseStream: one API before the models of many makers.

encode.py    a call to a request        history.py   its messages as content blocks
decode.py    bytes to events            framing.py   the frames of a stream
profiles.py  what each model can do
"""
