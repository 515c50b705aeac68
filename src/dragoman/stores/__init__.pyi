from .async_store import AsyncStore as AsyncStore
from .blocking import (
    AsyncConversationStore as AsyncConversationStore,
    BlockingStore as BlockingStore,
    aresume as aresume,
    copy_conversations as copy_conversations,
    resume as resume,
)
from .document import DocumentFormat as DocumentFormat, format_document as format_document
from .file import FileStore as FileStore
from .journal import (
    Journal as Journal,
    JournalEntry as JournalEntry,
    MessageAdded as MessageAdded,
    Recovered as Recovered,
    ToolCallBegun as ToolCallBegun,
    ToolCallDone as ToolCallDone,
    ToolCallPaused as ToolCallPaused,
    entry_to_json as entry_to_json,
    recovered as recovered,
)
from .listing import (
    Page as Page,
    SnapshotSummary as SnapshotSummary,
    Unreadable as Unreadable,
)
from .postgres import Attempt as Attempt, PostgresOptions as PostgresOptions, PostgresStore as PostgresStore
from .postgres_driver import Link as Link, parse_address as parse_address
from .protocol import ConversationStore as ConversationStore
from .sealing import (
    AesGcmSealing as AesGcmSealing,
    EncryptionKey as EncryptionKey,
    Records as Records,
    generate_encryption_key as generate_encryption_key,
)
from .snapshot import (
    Snapshot as Snapshot,
    conversation_id as conversation_id,
    inner_id as inner_id,
    is_inner as is_inner,
    new_id as new_id,
    snapshot_from_json as snapshot_from_json,
    snapshot_to_json as snapshot_to_json,
    validate_snapshot_id as validate_snapshot_id,
)
from .sqlite import MemoryStore as MemoryStore, SqliteStore as SqliteStore
