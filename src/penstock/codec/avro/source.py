"""Generated source: functions as lines of text, and the constants they name."""

from typing import Any


class Source:
    """Collects functions and compiles them in one module of their own.

    Everything from outside enters as a constant or through repr(), so no definition can write code.
    """

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = dict(names)
        self.lines: list[str] = []
        self._shared: dict[tuple[str, object], str] = {}

    def add(self, function: list[str]) -> None:
        """A finished function; each is complete before it is added, so they do not interleave."""
        self.lines += function

    def constant(self, what: str, value: Any) -> str:
        """A name for `value` in the generated code."""
        name = f"{what}_{len(self.names)}"
        self.names[name] = value
        return name

    def shared(self, what: str, key: object, value: Any) -> str:
        """As `constant`, once for every `key`."""
        known = self._shared.get((what, key))
        if known is None:
            known = self._shared[what, key] = self.constant(what, value)
        return known

    def compile(self) -> dict[str, Any]:
        """The namespace with the functions."""
        exec(compile("\n".join(self.lines), "<avro>", "exec"), self.names)  # noqa: S102
        return self.names
