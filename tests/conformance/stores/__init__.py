"""The suite that every store must pass, for the stores of this project and for those of others.

Subclass it where pytest finds it, and say how a store is made; pytest and its plugin `anyio` are needed:

    class TestMyStore(StoreSuite):
        def make(self, folder: Path) -> Store:
            return MyStore(folder / "data")

`make` is called again with the same folder after a store was closed: what was durable must be there then.
A store that is not durable sets `durable = False`.
"""

from .bench import Bench, entry
from .log import LogSuite
from .metadata import MetadataSuite
from .stages import StageSuite
from .trimming import TrimmingSuite

__all__ = ["Bench", "StoreSuite", "entry"]


class StoreSuite(LogSuite, TrimmingSuite, MetadataSuite, StageSuite):
    """The tests of a store, one base for each part of what a store does; see the module."""
