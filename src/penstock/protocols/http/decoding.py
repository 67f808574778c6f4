"""What is wrong with a JSON body, in words."""

from typing import Final

import msgspec

DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def reason(error: Exception) -> str:
    """What is wrong with a JSON body (one of DECODE_ERRORS), in words."""
    if isinstance(error, RecursionError):
        return "the body is nested too deeply"
    if isinstance(error, UnicodeError):
        return "the body is no UTF-8"
    return str(error)
