"""What the number of a schema version says, of a topic before a schema registry. Numbers are below 2^53, as JSON has them.

| number | |
| --- | --- |
| below 2^32 | the registry's version of the topic's subject |
| 2^32 + id | a schema by its id: one of another subject, or not known yet |
| 2^33 + n | a schema of a type that is not in the registry: number n of the documents |
| one of the first two + m · 2^34 | message m of a file of Protobuf's, m from 1 on: message 0 is the file's first |
| 2^52 + k · 2^33 + v | a pair: version k of the key's subject, and v, one of the first two; v 0: the value has no schema |
"""

from typing import Final

BY_ID: Final = 1 << 32
DOCUMENTS: Final = 1 << 33
MESSAGE: Final = 1 << 34
PAIR: Final = 1 << 52
KEY_VERSIONS: Final = 1 << 19  # of a key's subject: beyond them keys are not pairs
MESSAGES: Final = 1 << 18  # of a file


def is_document(version: int) -> bool:
    """Whether it is a number of the documents."""
    return DOCUMENTS <= version < MESSAGE


def split_message(version: int) -> tuple[int, int]:
    """The version of a file, and which of its messages it is."""
    message, base = divmod(version, MESSAGE)
    return base, message


def pair(key: int, value: int) -> int | None:
    """The version of a pair; None without a number for it."""
    fits = 0 < key < KEY_VERSIONS and 0 <= value < DOCUMENTS
    return PAIR + (key << 33) + value if fits else None


def split_pair(version: int) -> tuple[int, int] | None:
    """The versions of key and value; None if it is not a pair."""
    if not PAIR <= version < 2 * PAIR:
        return None
    key, value = divmod(version - PAIR, DOCUMENTS)
    return key, value
