"""Generated source: functions for types, as lines of text, and the constants that they name."""

from typing import Any

from .types import Type


class Compiler:
    """Generates a function for every requested tuple of types, in one separate module.

    Everything from outside enters as a constant or through repr(), so no definition can write code.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._shared: dict[tuple[str, object], str] = {}
        self._functions: dict[tuple[int, ...], str] = {}
        # Named, not yet emitted: a queue and no recursion, for types may refer to one another in long chains.
        self._waiting: list[tuple[Type, ...]] = []

    def compiled(self, *types: Type) -> Any:
        """The function of these types."""
        name = self.function(*types)
        lines: list[str] = []
        while self._waiting:
            lines += self.emit(*self._waiting.pop())
        exec(compile("\n".join(lines), "<avro>", "exec"), self._names)  # noqa: S102
        return self._names[name]

    def emit(self, *types: Any) -> list[str]:
        """The lines of a function, which is called as `function` says."""
        raise NotImplementedError

    def function(self, *types: Type) -> str:
        """The name of the function of these types; it is emitted later."""
        key = tuple(map(id, types))
        known = self._functions.get(key)
        if known is None:
            known = self._functions[key] = f"function_{len(self._functions)}"
            self._waiting.append(types)
        return known

    def constant(self, what: str, value: Any) -> str:
        """A name for `value` in the generated code."""
        name = f"{what}_{len(self._names)}"
        self._names[name] = value
        return name

    def shared(self, what: str, key: object, value: Any) -> str:
        """As `constant`, once for every `key`."""
        known = self._shared.get((what, key))
        if known is None:
            known = self._shared[what, key] = self.constant(what, value)
        return known
