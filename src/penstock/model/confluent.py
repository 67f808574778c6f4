"""Errors with the codes of Confluent's APIs, which their clients compare."""

import msgspec


class ConfluentCode(msgspec.Struct, frozen=True):
    """A code with its HTTP status."""

    status: int
    code: int


class ConfluentError(Exception):
    """A refusal of the schema registry or of the REST proxy."""

    def __init__(self, code: ConfluentCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
