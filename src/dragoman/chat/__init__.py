"""The chat client, its configuration and its credentials.

client.py        ChatClient and AsyncChatClient: signatures over core.py, which holds the conversation
options.py       the options of clients and turns
answers.py       typed answers, and their streams
agents.py        clients as tools; handoffs.py: which agent is in charge of a conversation
ledger.py        what is written to a store, and when
later.py         names that are loaded when a client or turn first needs them
factory.py       `new`, `new_async`: clients from a configuration
config.py        Config; config_files.py: its files; config_sources.py: load_config
credentials.py   keys: finding and storing them
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
