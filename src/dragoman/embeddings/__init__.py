"""Vectors of texts: `embed(texts, model="openai:text-embedding-3-small")`, and `aembed` on an event loop.

run.py        the two functions: texts in parts that the provider takes, several at once, order kept
profiles.py   what differs between providers and models, as rows      codecs.py   how each is asked, and answers
vectors.py    Embeddings, the result: one buffer that NumPy takes as it is; Sheet, where parts are put together
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
