from .async_store import AsyncStore as AsyncStore
from .blocking import BlockingStore as BlockingStore
from .blocking import areseal as areseal
from .blocking import aresume as aresume
from .blocking import reseal as reseal
from .blocking import resume as resume
from .encryption import (
    AesGcmSealing as AesGcmSealing,
)
from .encryption import (
    EncryptionKey as EncryptionKey,
)
from .encryption import (
    generate_encryption_key as generate_encryption_key,
)
from .file import FileStore as FileStore
from .journal import (
    Journal as Journal,
)
from .journal import (
    JournalEntry as JournalEntry,
)
from .journal import (
    MessageAdded as MessageAdded,
)
from .journal import (
    Recovered as Recovered,
)
from .journal import (
    ToolCallBegun as ToolCallBegun,
)
from .journal import (
    ToolCallDone as ToolCallDone,
)
from .journal import (
    entry_to_json as entry_to_json,
)
from .journal import (
    recovered as recovered,
)
from .json_form import snapshot_from_json as snapshot_from_json
from .json_form import snapshot_to_json as snapshot_to_json
from .listing import ListOptions as ListOptions
from .listing import Page as Page
from .listing import SnapshotSummary as SnapshotSummary
from .listing import Unreadable as Unreadable
from .memory import MemoryStore as MemoryStore
from .postgres import AsyncPostgresStore as AsyncPostgresStore
from .postgres import PostgresStore as PostgresStore
from .protocol import AsyncConversationStore as AsyncConversationStore
from .protocol import ConversationStore as ConversationStore
from .sealing import Sealing as Sealing
from .snapshot import ErrInvalidSnapshotID as ErrInvalidSnapshotID
from .snapshot import Snapshot as Snapshot
from .snapshot import validate_snapshot_id as validate_snapshot_id
from .sqlite import SqliteStore as SqliteStore
