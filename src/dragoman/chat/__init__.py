"""The chat client, its configuration and its credentials."""
