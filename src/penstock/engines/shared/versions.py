"""What is stored in a version that is not known here."""

from typing import Self

from penstock.model.errors import PenstockError


class UnknownVersion(bytes):
    """Stands for what is stored: no bytes, so that nothing decodes or shows what it does not understand."""

    error: PenstockError

    def __new__(cls, error: PenstockError) -> Self:
        made = super().__new__(cls)
        made.error = error
        return made

    def new_error(self) -> PenstockError:
        """NEWER_FORMAT, for each caller its own: a traceback grows with every raise."""
        return PenstockError(self.error.kind, self.error.message)
