"""Files that a provider stores, so that a large document is sent once and not with every turn.

client.py     Files and AsyncFiles: upload by content, delete, put references into a conversation
engine.py     an engine that does so before each call
stored.py     StoredFile, and the list of them that outlives the process
services.py   the file APIs of OpenAI, Anthropic and Gemini
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
