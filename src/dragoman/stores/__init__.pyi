from .async_store import AsyncStore as AsyncStore
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
from .ids import ErrInvalidSnapshotID as ErrInvalidSnapshotID
from .ids import validate_snapshot_id as validate_snapshot_id
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
    aresume as aresume,
)
from .journal import (
    entry_to_json as entry_to_json,
)
from .journal import (
    recovered as recovered,
)
from .journal import (
    resume as resume,
)
from .json_form import snapshot_from_json as snapshot_from_json
from .json_form import snapshot_to_json as snapshot_to_json
from .memory import MemoryStore as MemoryStore
from .postgres import AsyncPostgresStore as AsyncPostgresStore
from .postgres import PostgresStore as PostgresStore
from .protocol import AsyncConversationStore as AsyncConversationStore
from .protocol import ConversationStore as ConversationStore
from .sealing import Sealing as Sealing
from .sealing import areseal as areseal
from .sealing import reseal as reseal
from .snapshot import Snapshot as Snapshot
from .sqlite import SqliteStore as SqliteStore
from .summary import Page as Page
from .summary import SnapshotSummary as SnapshotSummary
from .summary import Unreadable as Unreadable
