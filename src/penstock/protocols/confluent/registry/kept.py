"""Answers to reads by id, which clients repeat: kept until the registry's state changes, and given to callers who may see their subject."""

from typing import Final, NamedTuple

from penstock.protocols.http.answers import Answer
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.paths import raw_path

_COUNT_MAX: Final = 4096
_BYTES_MAX: Final = 16 << 20  # of all of them
_KEY_MAX: Final = 512

Key = tuple[bytes, bytes, bytes]


class Kept(NamedTuple):
    """An answer, and a subject that a caller must be allowed to see to get it."""

    subject: str
    answer: Answer


class KeptAnswers:
    """Answers by path, query and Accept."""

    def __init__(self) -> None:
        self._revision = -1
        self._bytes = 0
        self._answers: dict[Key, Kept] = {}

    def find(self, key: Key, revision: int) -> Kept | None:
        """The answer that was kept at this revision of the state, if there is one."""
        if revision != self._revision:
            self._answers.clear()
            self._bytes, self._revision = 0, revision
        return self._answers.get(key)

    def keep(self, key: Key, subject: str, answer: Answer) -> None:
        """Keep an answer made at the revision of the last `find`."""
        size = len(answer.raw or b"") + sum(map(len, key))
        if (
            key in self._answers
            or sum(map(len, key)) > _KEY_MAX
            or len(self._answers) >= _COUNT_MAX
            or self._bytes + size > _BYTES_MAX
        ):
            return
        self._bytes += size
        self._answers[key] = Kept(subject, answer)


def key_of(exchange: Exchange) -> Key:
    """What an answer depends on beside the state."""
    scope = exchange.scope
    accept = b", ".join([value for name, value in scope["headers"] if name == b"accept"])
    return raw_path(scope), scope["query_string"], accept
