"""The placeholder for a stored value whose format version this release does not know."""

from typing import Self

from penstock.model.errors import PenstockError


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
