"""Keys: where they are found, and where they are kept.

    reference.py    where a configuration says that a key is
    find.py         the order of the places, and the error that names them all
    stored.py       keys that the user has stored: in the keychain, or in a file of mode 0600
    keychain.py     the system's keychain (an extra: keyring)

Which key may go to which host is decided in dragoman.engines.keys, once for all ways in which a key is found.
"""

from .find import Found, find_key
from .reference import KeyReference
from .stored import KeyStore, StoredKey, delete_key, list_keys, store_key

__all__ = ["Found", "KeyReference", "KeyStore", "StoredKey", "delete_key", "find_key", "list_keys", "store_key"]
