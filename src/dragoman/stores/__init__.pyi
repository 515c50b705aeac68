from .async_store import AsyncStore as AsyncStore
from .encryption import (
    AesGcmSealing as AesGcmSealing,
    EncryptionKey as EncryptionKey,
    generate_encryption_key as generate_encryption_key,
)
from .file import FileStore as FileStore
from .ids import ErrInvalidSnapshotID as ErrInvalidSnapshotID, validate_snapshot_id as validate_snapshot_id
from .journal import (
    Journal as Journal,
    JournalEntry as JournalEntry,
    MessageAdded as MessageAdded,
    Recovered as Recovered,
    ToolCallBegun as ToolCallBegun,
    ToolCallDone as ToolCallDone,
    aresume as aresume,
    entry_to_json as entry_to_json,
    recovered as recovered,
    resume as resume,
)
from .json_form import snapshot_from_json as snapshot_from_json, snapshot_to_json as snapshot_to_json
from .memory import MemoryStore as MemoryStore
from .postgres import AsyncPostgresStore as AsyncPostgresStore, PostgresStore as PostgresStore
from .protocol import AsyncConversationStore as AsyncConversationStore, ConversationStore as ConversationStore
from .sealing import Sealing as Sealing, areseal as areseal, reseal as reseal
from .snapshot import Snapshot as Snapshot
from .sqlite import SqliteStore as SqliteStore
from .summary import Page as Page, SnapshotSummary as SnapshotSummary, Unreadable as Unreadable
