"""Reading of stored documents: one that cannot be read is skipped and reported, and all others are read."""

from collections.abc import Callable, Mapping
from typing import Final, Self

import msgspec

from penstock.model.errors import PenstockError
from penstock.runtime.clock import LoopClock
from penstock.runtime.failures import FailureKind, Failures

# The errors of decoding bytes and parsing names, also of documents of unknown versions.
UNREADABLE: Final = (ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError, PenstockError)


class UnknownVersion(bytes):
    """Replaces the stored bytes by none, so that no code decodes or shows a value of an unknown version."""

    error: PenstockError

    def __new__(cls, error: PenstockError) -> Self:
        made = super().__new__(cls)
        made.error = error
        return made

    def new_error(self) -> PenstockError:
        """A new NEWER_FORMAT error: raising one instance repeatedly would grow its traceback."""
        return PenstockError(self.error.kind, self.error.message)


class DocumentReader:
    """Hands documents to the functions that decode them, and reports those that cannot be read.

    For an unreadable document the function sets a safe state, and then raises one of `UNREADABLE`.
    """

    def __init__(self, failures: Failures | None = None) -> None:
        self._failures = failures or Failures(LoopClock())

    def read(
        self, kind: str, key: str, document: bytes | None, learn: Callable[[str, bytes | None], object]
    ) -> bool:
        """Call `learn` with a document, or None if it was deleted; returns False if it could not be read."""
        subject = f"{kind} {key}".replace("\0", " ")
        try:
            learn(key, document)
        except UNREADABLE as error:
            why = document.error if isinstance(document, UnknownVersion) else error
            message = why.message if isinstance(why, PenstockError) else f"{why}"
            self._failures.failed(FailureKind.DOCUMENT, subject, message or type(error).__name__)
            return False
        if document is None:
            self._failures.dropped(FailureKind.DOCUMENT, subject)
        else:
            self._failures.recovered(FailureKind.DOCUMENT, subject)
        return True

    def read_all(
        self, kind: str, documents: Mapping[str, bytes], learn: Callable[[str, bytes | None], object]
    ) -> None:
        """Read all documents of a kind, in the order of their keys."""
        for key in sorted(documents):
            self.read(kind, key, documents[key], learn)
