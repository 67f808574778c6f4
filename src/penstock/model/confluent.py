"""Errors with the codes of Confluent's APIs, which their clients compare."""

import msgspec


class ConfluentCode(msgspec.Struct, frozen=True):
    """A code with its HTTP status."""

    status: int
    code: int


class ConfluentError(Exception):
    """A refusal of the schema registry or of the REST proxy. `detail` is given beside a message that clients compare."""

    def __init__(self, code: ConfluentCode, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.detail = detail
