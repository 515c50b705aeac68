"""Many conversations answered within a day at half the price: the batch APIs of OpenAI, Anthropic and Gemini.

client.py     Batches and AsyncBatches: submit, status, wait, results, cancel
handle.py     Batch, which outlives the process; its status, its results, and the directory that keeps it
services.py   how each provider takes a batch, tells how far it is and gives the results
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
