"""Files that a provider keeps, so that a large document is sent once and not with every turn.

client.py     Files and AsyncFiles: upload by content, delete, put references into a conversation
engine.py     an engine that does so before each call
stored.py     StoredFile, and the list of them that outlives the process
services.py   how OpenAI, Anthropic and Gemini take files, and which
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
