"""Templates of `--output template=…`: text with fields of the answer in braces, after Python's format strings.

`{topic}`, `{retention.retentionTimeInMinutes}`, `{publishers[0].producerName}`, `{messages:>9,}`. A field is looked up in
the answer's JSON alone: no attribute of an object can be reached.
"""

import json
import re
import string
from typing import Any, Final

import click

_STEP: Final = re.compile(r"\[(?P<item>[^\]]*)\]|\.?(?P<name>[^.\[\]]+)")
_OF_NUMBERS: Final = ",_bcdeEfFgGnoxX%"  # ends of a format that only numbers have
_ESCAPES: Final = {r"\t": "\t", r"\n": "\n"}


class Template:
    """A template, checked; `filled` makes a line of an answer."""

    def __init__(self, text: str) -> None:
        """Raises ValueError for braces that do not match, and for a field without a name."""
        for escape, stands_for in _ESCAPES.items():
            text = text.replace(escape, stands_for)
        self._text = text
        self._fields = _Fields()
        for _, name, _, _ in self._fields.parse(text):
            if name is not None and not name.strip():
                raise ValueError(
                    f"{text!r} has a field without a name: write {{name}}, and {{{{ for a brace."
                )

    def filled(self, answer: Any) -> str:
        """The answer as a line: nothing for a field that it does not have. Raises ClickException for a bad format."""
        try:
            return self._fields.vformat(
                self._text, (), answer if isinstance(answer, dict) else {"value": answer}
            )
        except (ValueError, OverflowError, MemoryError, TypeError) as error:
            raise click.ClickException(
                f"the template {self._text!r} does not fit: {str(error) or 'out of memory'}"
            ) from None


class _Fields(string.Formatter):
    """Looks fields up in JSON; says once of each that an answer does not have it."""

    def __init__(self) -> None:
        self._missed: set[str] = set()

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        value: Any = kwargs
        for step in _STEP.finditer(field_name):
            name = step["item"] if step["item"] is not None else step["name"]
            if isinstance(value, list) and name.isdecimal() and int(name) < len(value):
                value = value[int(name)]
            elif isinstance(value, dict) and name in value:
                value = value[name]
            else:
                self._miss(field_name, kwargs)
                return None, field_name
        return value, field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or isinstance(value, bool | dict | list):
            value = "" if value is None else json.dumps(value, ensure_ascii=False)
            format_spec = format_spec.rstrip(_OF_NUMBERS)  # a table's column stays as wide
        return format(value, format_spec)

    def _miss(self, field: str, answer: dict[str, Any]) -> None:
        if field not in self._missed:
            self._missed.add(field)
            there = ", ".join(answer)
            click.echo(f"penstock: an answer has no field {field!r}; it has {there}", err=True)
