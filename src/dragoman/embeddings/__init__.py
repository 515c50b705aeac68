"""Text embeddings: `embed(texts, model="openai:text-embedding-3-small")`, and `aembed` for async programs.

run.py        the two functions: texts split into requests, several at once, order kept
profiles.py   what differs between providers and models, as rows      codecs.py   their requests and replies
vectors.py    Embeddings, the result: one buffer that NumPy uses without a copy; Sheet, which collects it
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
