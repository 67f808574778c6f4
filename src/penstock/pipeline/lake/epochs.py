"""Fencing of processes in an object store, which has no file locks.

Each process that takes over claims the next epoch; a process confirms its own before it does what no other may have
done. A claim and a confirmation are commits to a Delta table without rows, each on the condition that nobody committed
since: of two at once one fails, and once a claim is made no earlier epoch is ever confirmed again. No clock is involved.

The table remembers, with the epoch, a generation, which is a number that its owner sets, and the last batch that was
confirmed, with the offsets that it reads.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from penstock.pipeline.errors import NEEDS_DELTA, PipelineError

from .store import Location

try:
    from deltalake import CommitProperties, DeltaTable, Field, Schema
    from deltalake.exceptions import DeltaError
    from deltalake.schema import PrimitiveType
    from deltalake.transaction import Transaction
except ImportError:
    raise PipelineError(NEEDS_DELTA) from None

ATTEMPTS_MAX: Final = 5  # of a confirmation

_EPOCH: Final = "epoch"  # part of every commit: two commits that name the same transaction conflict
_GENERATION: Final = "generation"
_BATCH: Final = "batch"
_OFFSETS: Final = "offsets"

# A commit that is older is of no use: who read the table before it is refused, whether its log is there or not.
_SETTINGS: Final = {"delta.logRetentionDuration": "interval 1 hours", "delta.checkpointInterval": "20"}


class Overtaken(PipelineError):
    """Another process has claimed a later epoch, or did so at the same moment."""


class State(NamedTuple):
    """What the table remembers. `batch` is -1, and `offsets` empty, before the first batch of a generation."""

    epoch: int = 0
    generation: int = 0
    batch: int = -1
    offsets: str = ""


class Epochs:
    """The epochs of one folder of an object store. Raises StoreError if the store cannot be used."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._table: DeltaTable | None = None
        self._state = State()  # of `_table`

    @property
    def last(self) -> State:
        """What the table remembered when it was last read or written here."""
        return self._state

    def look(self) -> State:
        """What the table remembers now. Creates nothing."""
        with self._folder.reached("the state"):
            self._open()
            return self._state

    def claim(self, seen: State) -> int:
        """The next epoch, ours from now on. Raises Overtaken unless `look` has just returned `seen`."""
        with self._folder.reached("the state"):
            if self._table is None:
                self._create()
            if self._state != seen or not self._commits(seen._replace(epoch=seen.epoch + 1)):
                raise Overtaken("another process was faster")
            return seen.epoch + 1

    def confirm(self, epoch: int) -> None:
        """Make sure that no later epoch was claimed. Raises Overtaken."""
        self._confirm(epoch, lambda now: now)

    def confirm_batch(self, epoch: int, batch: int, offsets: str) -> None:
        """The same, before a batch is written, which is remembered with its offsets."""
        self._confirm(epoch, lambda now: now._replace(batch=batch, offsets=offsets))

    def next_generation(self, epoch: int) -> int:
        """The same, and begin another generation: its number."""
        self._confirm(epoch, lambda now: State(epoch, now.generation + 1))
        return self._state.generation

    def _confirm(self, epoch: int, change: Callable[[State], State]) -> None:
        with self._folder.reached("the state"):
            if self._table is None:
                self._open()
            for _ in range(ATTEMPTS_MAX):
                if self._table is None or self._state.epoch != epoch:
                    break
                if self._commits(change(self._state)):
                    return
            raise Overtaken("another process has taken over")

    def _commits(self, state: State) -> bool:
        """One commit behind what was read; False if there is another. Then the table is read again: the other may be
        this very commit, whose answer was lost."""
        assert self._table is not None
        marks = [Transaction(_EPOCH, state.epoch), Transaction(_GENERATION, state.generation)]
        last = {_BATCH: str(state.batch), _OFFSETS: state.offsets}
        properties = CommitProperties(custom_metadata=last, app_transactions=marks, max_commit_retries=0)
        before = self._table.version()
        try:
            self._table.create_write_transaction(
                [], "append", self._table.schema(), [], commit_properties=properties
            )
        except DeltaError:  # CommitFailedError, or another where the log of what was committed since is gone
            self._open()
            return False
        self._table.update_incremental()
        if self._table.version() == before + 1:  # else another commit followed at once
            self._state = state
        else:
            self._read()
        return True

    def _open(self) -> None:
        self._table = None
        if self._folder.has("_delta_log"):
            self._table = DeltaTable(self._folder.url, storage_options=self._folder.store())
        self._read()

    def _create(self) -> None:
        self._table = DeltaTable.create(
            self._folder.url,
            Schema([Field("none", PrimitiveType("long"))]),
            mode="ignore",
            configuration=_SETTINGS,
            storage_options=self._folder.store(),
        )
        self._read()

    def _read(self) -> None:
        """What the table remembers: a question that reads its log."""
        self._state = State()
        if self._table is not None:
            epoch, generation = (self._table.transaction_version(name) for name in (_EPOCH, _GENERATION))
            last = self._table.history(1)[0]
            batch, offsets = int(last.get(_BATCH, -1)), str(last.get(_OFFSETS, ""))
            self._state = State(epoch or 0, generation or 0, batch, offsets)
