"""Which stores a configuration means."""

from typing import Final

from penstock.engines.embedded.memory import MemoryStore
from penstock.engines.embedded.ports import Store

from .config import DataSettings, StorageSettings

# A message id names its log by the ledger alone, so those of non-persistent topics begin above all others.
TRANSIENT_LEDGERS: Final = 1 << 40


def open_stores(settings: DataSettings, storage: StorageSettings) -> tuple[Store, Store]:
    """The store of persistent topics and that of the others; neither is started."""
    transient = MemoryStore(TRANSIENT_LEDGERS)
    if settings.store == "memory":
        return MemoryStore(), transient
    from penstock.engines.embedded.sqlite import SqliteStore  # a server in memory starts without it

    return SqliteStore.bounded(settings.folder, storage.size_max_bytes, storage.reserve_bytes), transient
