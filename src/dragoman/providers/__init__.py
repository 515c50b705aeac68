"""Providers as codecs: pure functions between our values and a provider's bytes.

    options.py       the options of a model call
    server_tools.py  the providers' own tools, as values
    profile.py       what a model can do, as data
    catalogue.py     the known providers, model names and profiles
    codec.py         the interface of a dialect
    requests.py      encoding: options, tools, names
    history.py       encoding: messages
    wire.py          decoding: streams of events, JSON that stays unparsed
    failures.py      error responses as typed errors
    citations.py     the sources of an answer
    details.py       log probabilities, safety ratings, further answers
    structured.py    replies with a schema
    schema/          JSON Schemas in the style of each provider
    preflight.py     checks tools before anything is sent
    counting.py      how many tokens a model would read
    prices.py        costs and context windows
    prompt_cache.py  how much of a prompt came from the provider's cache, and why not more
    …                a package for each dialect: openai_chat, openai_responses, anthropic, gemini, bedrock; encode.py
                     makes the request, history.py writes its messages, decode.py reads the reply, profiles.py has rows

No clock, no network, no files, no environment: those belong to the engines.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
