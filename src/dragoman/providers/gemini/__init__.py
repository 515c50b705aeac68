"""`generateContent` and `streamGenerateContent`, on Google's Gemini API and on Vertex AI.

encode.py    a call to a request        history.py   its messages as contents
decode.py    bytes to events            profiles.py  what each model can do
"""
