"""Which of several processes may go on, where no lock of a file system can say so: in an object store.

Each process that takes over claims the next epoch; a process confirms its own before it does what no other may have
done. A claim and a confirmation are commits to a Delta table without rows, each on the condition that nobody committed
since: of two at once one fails, and once a claim is made no earlier epoch is ever confirmed again. No clock is involved.

The table remembers, beside the epoch, a generation: a number that its owner sets.
"""

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

# A commit that is older is of no use: who read the table before it is refused, whether its log is there or not.
_SETTINGS: Final = {"delta.logRetentionDuration": "interval 1 hours", "delta.checkpointInterval": "20"}


class Overtaken(PipelineError):
    """Another process has claimed a later epoch, or did so at the same moment."""


class State(NamedTuple):
    """What the table remembers; zeros where there is none."""

    epoch: int
    generation: int


class Epochs:
    """The epochs of one folder of an object store. Raises StoreError where the store cannot be used."""

    def __init__(self, folder: Location) -> None:
        self._folder = folder
        self._table: DeltaTable | None = None
        self._state = State(0, 0)  # of `_table`

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
            if self._state != seen or not self._commits(seen.epoch + 1, None):
                raise Overtaken("another process was faster")
            return seen.epoch + 1

    def confirm(self, epoch: int, generation: int | None = None) -> None:
        """Make sure that no later epoch was claimed, and set the generation. Raises Overtaken."""
        with self._folder.reached("the state"):
            if self._table is None:
                self._open()
            for _ in range(ATTEMPTS_MAX):
                if self._table is None or self._state.epoch != epoch:
                    break
                if self._commits(epoch, generation):
                    return
            raise Overtaken("another process has taken over")

    def _commits(self, epoch: int, generation: int | None) -> bool:
        """One commit behind what was read; False where there is another. Then the table is read again: the other may be
        this very commit, whose answer was lost."""
        assert self._table is not None
        marks = [Transaction(_EPOCH, epoch)]
        if generation is not None:
            marks.append(Transaction(_GENERATION, generation))
        properties = CommitProperties(app_transactions=marks, max_commit_retries=0)
        before = self._table.version()
        try:
            self._table.create_write_transaction(
                [], "append", self._table.schema(), [], commit_properties=properties
            )
        except DeltaError:  # CommitFailedError, or another where the log of what was committed since is gone
            self._open()
            return False
        self._table.update_incremental()
        if self._table.version() == before + 1:  # else somebody was at once behind us
            kept = self._state.generation if generation is None else generation
            self._state = State(epoch, kept)
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
        self._state = State(0, 0)
        if self._table is not None:
            epoch, generation = (self._table.transaction_version(name) for name in (_EPOCH, _GENERATION))
            self._state = State(epoch or 0, generation or 0)
