"""A small model that runs on this machine, without a key: provider `local`.

models.py      the models that can be downloaded (models.json), and from `local:…` to a model
storage.py     list, pull and remove them; gguf.py converts one that is published in another format
runtime.py     llama.cpp: whether it can be loaded here, and a library that it may lack
server.py      the server process of a model (child.py), shared by a user's programs, and requests to it
prompt.py      tools, calls and results as text, and back          grammar.py    what the model can write
factory.py     engines for `local:…`: chat completions with the two above
"""
