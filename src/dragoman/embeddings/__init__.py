"""Vectors of texts: `embed(texts, model="openai:text-embedding-3-small")`, and `aembed` on an event loop.

run.py        the two functions: texts in parts that the provider takes, several at once, order kept
codecs.py     how each provider is asked and answers; what differs between models, as rows
vectors.py    Embeddings, the result: one buffer that NumPy takes as it is; Sheet, where parts are put together
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
