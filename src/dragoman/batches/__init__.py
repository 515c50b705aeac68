"""Many conversations answered within a day at half the price: the batch APIs of OpenAI, Anthropic and Gemini.

client.py     Batches and AsyncBatches: submit, status, wait, results, cancel
handle.py     Batch, which outlives the process; its status, its results, and batches as files
services.py   the batch APIs of the providers
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
