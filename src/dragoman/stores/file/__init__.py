"""A store in a directory.

store.py         FileStore: checks, locks, pages
shelf.py         the layout on disk, the store's marker, which conversation a snapshot belongs to
chain.py         one conversation: its head and its log; log.py: reading a log
journal_file.py  its journal
resealing.py     sealing it again
catalogue.py     all conversations, for lists
upkeep.py        what killed writers leave behind
frames.py        the bytes of all these files
seals.py         their parts, sealed and opened
folder.py        files through an open directory; locks.py: locks; troubles.py: errors
"""

from __future__ import annotations

from .store import FileStore

__all__ = ["FileStore"]
