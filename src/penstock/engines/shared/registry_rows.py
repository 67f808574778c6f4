"""The records of the schema registry as a process has read them from a log that several processes write."""

from collections.abc import Callable, Iterable

from penstock.broker.registry import RegistryRecord


class RegistryRows:
    """The last record of each key, in the order in which they were written."""

    def __init__(self) -> None:
        self.writer = ""  # the process that wrote last
        self._by_key: dict[str, RegistryRecord] = {}
        self._learners: list[Callable[[RegistryRecord], None]] = []

    def open(self, learn: Callable[[RegistryRecord], None]) -> None:
        """Call `learn` with every record, and with each that comes."""
        for record in self._by_key.values():
            learn(record)
        self._learners.append(learn)

    def learn(self, record: RegistryRecord) -> None:
        """A record was read."""
        self._by_key.pop(record.key, None)
        if record.value is not None:
            self._by_key[record.key] = record
        for learn in self._learners:
            learn(record)

    def get(self, key: str) -> RegistryRecord:
        """The record of a key; one without a value if there is none."""
        return self._by_key.get(key) or RegistryRecord(key, None)

    def have(self, records: Iterable[RegistryRecord]) -> bool:
        """Whether records are the last ones of their keys, as their writer left them."""
        return all(self.get(one.key) == one for one in records)
