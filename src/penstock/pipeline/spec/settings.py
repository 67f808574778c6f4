"""Settings given beside a pipeline's file (`--set`), and variables of the environment in its texts.

Both are applied to the parsed TOML, before anything is checked: first the settings, then `${NAME}` in every text. Pure.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import ENVIRONMENT

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

# Keys whose text is a secret itself, and not the name of a file, a variable or an account.
_SECRET: Final = re.compile(
    r"(?:^|[._-])(?:password|passwd|secret|token|credential|jaas[._-]config|(?:secret|secret[._-]access|account)[._-]key)$",
    re.IGNORECASE,
)

Settings = Mapping[str, Any] | Iterable[str]


def apply_settings(content: dict[str, Any], given: Settings, file: str) -> None:
    """Put settings into the content of a file: values by dotted key, or texts `KEY=VALUE`.

    A key is written as in TOML; an entry of a list of tables is named by its `name` (`steps.parsed.sql`). Raises
    PipelineError.
    """
    pairs = given.items() if isinstance(given, Mapping) else map(_parsed, given)
    for key, value in pairs:
        *tables, last = _path(key)
        place: Any = content
        for name in tables:
            place = _inside(place, name, f"{file}: setting {key}")
        if not isinstance(place, dict):
            raise PipelineError(
                f"{file}: setting {key}: {'.'.join(tables)} is a list; name one of its entries"
            )
        place[last] = value


def with_variables(value: Any, environment: Mapping[str, str], place: str) -> Any:
    """`value` with `${NAME}` and `${NAME:-default}` replaced in every text; `$${` is a `${` that stays.

    Raises PipelineError for a variable that is not set and has no default.
    """
    if isinstance(value, dict):
        return {key: with_variables(each, environment, _below(place, key)) for key, each in value.items()}
    if isinstance(value, list):
        return [with_variables(each, environment, place) for each in value]
    if not isinstance(value, str):
        return value

    def replaced(found: re.Match[str]) -> str:
        name, default = found.groups()
        if name is None:
            return "${"
        text = environment.get(name)
        if default is not None:
            text = text or default  # as in a shell, an empty variable counts as none
        if text is None:
            raise PipelineError(
                f"{place}: the environment variable {name} is not set; set it, or write ${{{name}:-default}}"
            )
        return text

    return _VARIABLE.sub(replaced, value)


def literal_secrets(content: Mapping[str, Any], file: str) -> list[str]:
    """A sentence for each key of a file that holds a secret as text."""
    return [
        f"{file}: {'.'.join(path)} holds a secret as text: write ${{NAME}}, a variable of the environment"
        for path, text in _texts(content)
        if _SECRET.search(path[-1]) and text and "${" not in text and not text.startswith(ENVIRONMENT)
    ]


def _texts(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _texts(each, (*path, key))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each, path)
    elif isinstance(value, str) and path:
        yield path, value


def _parsed(text: str) -> tuple[str, Any]:
    """`KEY=VALUE`, the value as TOML or, if it is not TOML, as text."""
    key, separator, value = text.partition("=")
    if not separator:
        raise PipelineError(f"setting {text!r} is not KEY=VALUE, like sinks.history.path=/tmp/history")
    try:
        found = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key, value
    return key, found["value"] if len(found) == 1 else value


def _path(key: str) -> list[str]:
    try:
        found: Any = tomllib.loads(f"{key.strip()} = 0")
    except tomllib.TOMLDecodeError:
        raise PipelineError(f"setting {key!r} is not a key like sinks.history.path") from None
    path: list[str] = []
    while isinstance(found, dict):
        ((name, found),) = found.items()
        path.append(name)
    return path


def _inside(place: Any, name: str, where: str) -> Any:
    """The table or list `name` of a table, created if it is missing; the table of that name in a list."""
    if isinstance(place, list):
        named = {each.get("name"): each for each in place if isinstance(each, dict)}
        if name not in named:
            raise PipelineError(f"{where}: there is no {name!r}; there are {', '.join(map(str, named))}")
        return named[name]
    found = place.setdefault(name, {})
    if not isinstance(found, dict | list):
        raise PipelineError(f"{where}: {name} is not a table")
    return found


def _below(place: str, key: str) -> str:
    return f"{place}{'' if place.endswith(': ') else '.'}{key}"
