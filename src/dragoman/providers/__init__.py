"""Providers as codecs: pure functions between our values and a provider's bytes.

    options.py     what can be asked of a model, the same for all
    profile.py     what a model can do: abilities, limits and names as data
    catalogue.py   the rows: providers, and their models' profiles
    codec.py       what every dialect offers: encode, a decoder, errors
    sse.py         server-sent events, from bytes in any pieces
    …              one package for each dialect: openai_chat, openai_responses, anthropic, gemini

No clock, no network, no files, no environment: an engine does all that.
"""
