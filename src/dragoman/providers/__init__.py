"""Providers as codecs: pure functions between our values and a provider's bytes.

    options.py     what can be asked of a model, the same for all
    server_tools.py  the providers' own tools, as values
    profile.py     what a model can do: abilities, limits and names as data
    catalogue.py   the rows: providers, and their models' profiles; what a model's name means
    codec.py       what every dialect offers: encode, a decoder, errors
    requests.py    what all encoders do alike: options, tools, names
    history.py     … and with messages
    wire.py        what all decoders do alike: streams of events, JSON that is kept unread
    failures.py    refusals as typed errors
    citations.py   where an answer comes from
    details.py     what a reply says besides: likelihoods, filters, further answers
    structured.py  replies of a given schema, whatever the model offers
    schema/        JSON Schemas in the style of each provider
    preflight.py   what a provider would say to some tools
    counting.py    how many tokens a model would read
    prompt_cache.py  how much of a prompt could come from a provider's cache, and what changed if it did not
    …              one package for each dialect: openai_chat, openai_responses, anthropic, gemini, bedrock; encode.py
                   makes a request of a call, history.py writes its messages, decode.py reads the reply, profiles.py has
                   rows

No clock, no network, no files, no environment: an engine does all that.
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
