"""Sentences for errors of JSON bodies."""

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def reason(error: Exception) -> str:
    """A sentence for an error of a JSON body (one of DECODE_ERRORS)."""
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    if isinstance(error, UnicodeError):
        return "the body is no UTF-8"
    return str(error)
