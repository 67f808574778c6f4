"""Schemas that use others: what a registry says they are, and the registering of what ours import."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from penstock.codec.proto.native import ProtoFile
from penstock.model.errors import ErrorKind, PenstockError

from .client import Definition, Reference, Registered, RegistryClient

REFERENCES_MAX: Final = 200  # that one schema uses, also through others
REMEMBERED: Final = 1000
TRIES: Final = 10  # to register a schema beside other processes


class References:
    """Asks the registry for schemas by subject and version, which never change."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._known: OrderedDict[tuple[str, int], Definition] = OrderedDict()

    async def of(self, definition: Definition) -> dict[str, str]:
        """The texts that a schema uses, also through others, by the names they are used by.

        Raises BAD_VALUE_SCHEMA where one is not there, and as the client.
        """
        found: dict[str, str] = {}
        waiting = list(definition.references)
        while waiting:
            one = waiting.pop()
            if one.name in found:
                continue
            if len(found) >= REFERENCES_MAX:
                raise PenstockError(
                    ErrorKind.BAD_VALUE_SCHEMA, f"a schema that uses more than {REFERENCES_MAX} others"
                )
            used = await self._get(one)
            found[one.name] = used.text
            waiting += used.references
        return found

    async def _get(self, one: Reference) -> Definition:
        place = one.subject, one.version
        known = self._known.get(place)
        if known is None:
            held = await self._client.version(*place)
            if held is None:
                raise PenstockError(
                    ErrorKind.BAD_VALUE_SCHEMA,
                    f"a schema uses version {one.version} of {one.subject}, which is not there",
                )
            known = self._known[place] = held.definition
            if len(self._known) > REMEMBERED:
                self._known.popitem(last=False)
        return known

    async def imported(
        self, definition: Definition, direct: Sequence[str], files: Sequence[ProtoFile], *, register: bool
    ) -> Definition | None:
        """A Protobuf schema with the files it imports as references: each is a subject of its name, as Confluent's
        serializers have it. None where one is not registered and `register` is off.
        """
        held: dict[str, Reference] = {}
        for file in files:
            used = tuple(held[name] for name in file.imports if name in held)
            imported = Definition("PROTOBUF", file.text, used)
            found = await self._client.lookup(file.name, imported)
            if found is None:
                if not register:
                    return None
                found = await self.register(file.name, imported)
            held[file.name] = Reference(file.name, file.name, found.version)
        references = tuple(held[name] for name in direct if name in held)
        return Definition(definition.type, definition.text, references)

    async def register(self, subject: str, definition: Definition) -> Registered:
        """Register a schema that was not found; raises INCOMPATIBLE_SCHEMA, BAD_VALUE_SCHEMA, UNAVAILABLE."""
        for _ in range(TRIES):
            refused: PenstockError | None = None
            try:
                await self._client.register(subject, definition)
            except PenstockError as error:
                if error.kind is not ErrorKind.INCOMPATIBLE_SCHEMA:
                    raise
                refused = error
            held = await self._client.lookup(subject, definition)
            if held is not None:
                return held
            if refused is not None and await self._client.objection(subject, definition) is not None:
                raise refused
            # Another process registered at the same time, which a registry may answer with the same status.
        raise PenstockError(
            ErrorKind.UNAVAILABLE, f"the schema registry does not take the schema of {subject}: try again"
        )
