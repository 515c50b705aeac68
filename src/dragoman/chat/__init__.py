"""The chat client, its configuration and its credentials.

client.py        ChatClient and AsyncChatClient: signatures over core.py, which holds the conversation
options.py       options, prompts
answers.py       answers of a type; growing.py: while they come
agents.py        clients behind tools; handoffs.py: who is in charge of a conversation
ledger.py        what is written to a store, and when
later.py         what only some clients and turns load
factory.py       `new`, `new_async`: clients from configuration
config.py        configuration; config_files.py: its files; config_sources.py: load_config and its explanations
credentials.py   keys, and where they are kept
"""

from dragoman._door import open_door

__getattr__, __dir__ = open_door(__name__, __file__)
