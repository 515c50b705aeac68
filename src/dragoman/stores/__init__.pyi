from .async_store import AsyncStore as AsyncStore
from .blocking import BlockingStore as BlockingStore, aresume as aresume, resume as resume
from .file import FileStore as FileStore
from .journal import (
    Journal as Journal,
    JournalEntry as JournalEntry,
    MessageAdded as MessageAdded,
    Recovered as Recovered,
    ToolCallBegun as ToolCallBegun,
    ToolCallDone as ToolCallDone,
    entry_to_json as entry_to_json,
    recovered as recovered,
)
from .json_form import snapshot_from_json as snapshot_from_json, snapshot_to_json as snapshot_to_json
from .listing import (
    ListOptions as ListOptions,
    Page as Page,
    SnapshotSummary as SnapshotSummary,
    Unreadable as Unreadable,
)
from .postgres import AsyncPostgresStore as AsyncPostgresStore, PostgresStore as PostgresStore
from .protocol import (
    AsyncConversationStore as AsyncConversationStore,
    ConversationStore as ConversationStore,
    Resealed as Resealed,
)
from .sealing import (
    AesGcmSealing as AesGcmSealing,
    EncryptionKey as EncryptionKey,
    generate_encryption_key as generate_encryption_key,
)
from .snapshot import (
    ErrInvalidSnapshotID as ErrInvalidSnapshotID,
    Snapshot as Snapshot,
    conversation_id as conversation_id,
    validate_snapshot_id as validate_snapshot_id,
)
from .sqlite import MemoryStore as MemoryStore, SqliteStore as SqliteStore
