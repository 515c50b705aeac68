"""What every store must do. A store's own tests subclass `StoreContract` and say how it is opened:

    class TestSqlite(StoreContract):
        @pytest.fixture
        def opener(self, tmp_path):
            return lambda: SqliteStore(tmp_path / "store.db")

`opener` opens the same store each time, as another process would. An async store takes part through `blocking`.
"""

from __future__ import annotations

from dragoman.conversation import Message
from tests.stores.cases import NOON, Opener, after, chain, first, pages
from tests.stores.contract_asking import AskingContract
from tests.stores.contract_journal import JournalContract
from tests.stores.contract_saving import SavingContract
from tests.stores.contract_sharing import SharingContract

__all__ = ["NOON", "Message", "Opener", "StoreContract", "after", "chain", "first", "pages"]


class StoreContract(SavingContract, AskingContract, JournalContract, SharingContract):
    """All of it."""
