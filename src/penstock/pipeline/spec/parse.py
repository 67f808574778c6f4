"""Reads a pipeline's file. Every refusal is one sentence that names the file, the table and the key.

Settings (`--set`) are applied to the parsed TOML first, then `${NAME}` in every text; then it is checked.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.client.access import Access
from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import ENVIRONMENT, SERVER, is_url

from .rules import check_rules
from .spec import TABLE_TRIGGER, Expectation, Lineage, Lookup, Sink, Source, Spec, Step, Watermark

STATE: Final = "penstock-pipelines"

_SCALARS: Final = ("name", "dead_letters", "output", "trigger", "state", "master")
_TABLES: Final = (
    *("server", "schema_registry", "sources", "tables", "steps", "sinks", "storage", "spark", "lineage"),
)
_SERVER: Final = tuple(one.key for one in SERVER)
_REGISTRY: Final = (*_SERVER, "basic_env")
# Formats whose option `path` is a path, and not the name of a table.
_FILES_FORMATS: Final = (
    "avro",
    "binaryfile",
    "csv",
    "delta",
    "hudi",
    "json",
    "orc",
    "parquet",
    "text",
    "xml",
)
_FILES: Final = ("token_file", "ca_file", "cert_file", "key_file")

T = TypeVar("T", bound=msgspec.Struct)

Settings = Mapping[str, Any] | Iterable[str]

_VARIABLE: Final = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

# Keys whose text is a secret itself, and not the name of a file, a variable or an account.
_SECRET: Final = re.compile(
    r"(?:^|[._-])(?:password|passwd|secret|token|credential|jaas[._-]config|(?:secret|secret[._-]access|account)[._-]key)$",
    re.IGNORECASE,
)


def read_toml(file: Path | str) -> dict[str, Any]:
    """The content of a TOML file. Raises PipelineError."""
    try:
        return tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise PipelineError(f"{file} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PipelineError(f"{file} is no TOML: {error}") from None


def load_spec(
    file: Path | str,
    *,
    url: str = "",
    state: Path | str | None = None,
    master: str = "",
    settings: Settings = (),
) -> Spec:
    """Read the file and check it; separate arguments win. `settings`: see `apply_settings`. Raises PipelineError."""
    content = read_toml(file)
    content.pop("tests", None)  # read by `cases.load_cases`
    warnings = literal_secrets(content, str(file))
    if url:
        server = content.get("server")
        content["server"] = {**(server if isinstance(server, dict) else {}), "url": url}
    if state is not None:
        content["state"] = _given_state(state)
    if master:
        content["master"] = master
    apply_settings(content, settings, str(file))
    content = with_variables(content, os.environ, f"{file}: ")
    spec = parse_spec(content, str(file), Path(file).absolute().parent)
    return msgspec.structs.replace(spec, warnings=tuple(warnings))


def _given_state(state: Path | str) -> str:
    """An absolute path; a URL as it is, though a Path has lost a slash of it."""
    text = str(state)
    url = text.replace(":/", "://", 1) if isinstance(state, Path) else text
    return url if is_url(url) else str(Path(text).absolute())


def parse_spec(content: Mapping[str, Any], file: str, folder: Path) -> Spec:
    """A spec from the content of a TOML file. Raises PipelineError."""
    try:
        spec = _spec(content, file, folder)
    except PipelineError as error:
        raise PipelineError(f"{file}: {error.message}") from None
    check_rules(spec)
    return spec


def _spec(content: Mapping[str, Any], file: str, folder: Path) -> Spec:
    _known(content, (*_SCALARS, *_TABLES), "")
    if "name" not in content:
        raise PipelineError("name is missing: what the pipeline is called")
    types = {field.name: field.type for field in msgspec.structs.fields(Spec)} | {"state": str}
    given = {key: _convert(content[key], types[key], key) for key in _SCALARS if key in content}
    given["state"] = _state(folder, given.get("state", STATE))
    if "schema_registry" in content:
        given["schema_registry"] = _access(content, "schema_registry", folder, _REGISTRY, "")
    sinks = _named(content, "sinks", Sink, folder)
    if any(sink.path for sink in sinks.values()):
        given.setdefault("trigger", TABLE_TRIGGER)
    steps = content.get("steps", [])
    if not isinstance(steps, list):
        raise PipelineError("[steps]: steps are written [[steps]], in the order in which they run")
    return Spec(
        **given,
        server=_access(content, "server", folder, _SERVER, "http://127.0.0.1:8080"),
        sources=_named(content, "sources", Source, folder),
        tables=_named(content, "tables", Lookup, folder),
        steps=tuple(_struct(one, Step, _place_of(one, n)) for n, one in enumerate(steps, 1)),
        sinks=sinks,
        storage=_settings(content.get("storage", {}), "[storage]"),
        lineage=_struct(content.get("lineage", {}), Lineage, "[lineage]"),
        spark=_settings(content.get("spark", {}), "[spark]"),
        folder=folder,
        file=file,
    )


def _access(content: Mapping[str, Any], kind: str, folder: Path, keys: tuple[str, ...], url: str) -> Access:
    """A server's address, in the table `kind`, whose `url` is this one unless it is given."""
    place = f"[{kind}]"
    raw = _mapping(content.get(kind, {}), place)
    _known(raw, keys, place)
    texts = {key: _convert(raw[key], str, f"{place} {key}") for key in raw}
    texts |= {key: str(folder / texts[key]) for key in _FILES if texts.get(key)}
    ways = [key for key in ("token_file", "token_env", "basic_env") if texts.get(key)]
    if len(ways) > 1:
        raise PipelineError(f"{place} {' and '.join(ways)} exclude one another")
    if texts.get("key_file") and not texts.get("cert_file"):
        raise PipelineError(f"{place} key_file needs cert_file")
    try:
        return Access(**{"url": url, **texts})
    except PenstockError as error:
        raise PipelineError(f"{place} url: {error.message}") from None


def _named(content: Mapping[str, Any], kind: str, type_: type[T], folder: Path) -> dict[str, T]:
    """The tables `[kind.name]`, whose paths are relative to the file's folder."""
    found: dict[str, T] = {}
    for name, raw in _mapping(content.get(kind, {}), f"[{kind}]").items():
        made: Any = _struct(raw, type_, f"[{kind}.{name}]")
        if path := getattr(made, "path", ""):
            made = msgspec.structs.replace(made, path=_place(folder, path))
        if made.format.lower() in _FILES_FORMATS and (path := made.options.get("path")):
            made = msgspec.structs.replace(made, options={**made.options, "path": _place(folder, path)})
        found[name] = made
    return found


def _place_of(raw: Any, number: int) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    return f"[[steps]] {name}" if isinstance(name, str) else f"[[steps]] number {number}"


def _struct(raw: Any, type_: type[T], place: str) -> T:
    """A table of the file as the struct it makes; each key is converted by itself, so that it can be named."""
    table = _mapping(raw, place)
    fields = {field.name: field for field in msgspec.structs.fields(type_)}
    _known(table, tuple(fields), place)
    for name, field in fields.items():
        if field.required and name not in table:
            raise PipelineError(f"{place} {name} is missing")
    values: dict[str, Any] = {}
    for key, value in table.items():
        inside = f"{place} {key}"
        if key == "watermark":
            values[key] = _struct(value, Watermark, inside)
        elif key == "options":
            values[key] = _settings(value, inside)
        elif key == "expect":
            if not isinstance(value, list):
                raise PipelineError(f"{inside}: a list of tables is expected")
            rules = enumerate(value, 1)
            values[key] = tuple(_struct(one, Expectation, f"{inside}, number {n}") for n, one in rules)
        else:
            values[key] = _convert(value, fields[key].type, inside)
    return type_(**values)


def _known(raw: Mapping[str, Any], names: tuple[str, ...], place: str) -> None:
    for key in raw:
        if key not in names:
            like = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {like[0]}?" if like else f"there are {', '.join(names)}"
            raise PipelineError(f"{place} {key}: unknown key; {hint}".lstrip())


def _mapping(raw: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise PipelineError(f"{place}: a table is expected")
    return raw


def _convert(value: Any, type_: Any, place: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        text = str(error)
        raise PipelineError(f"{place}: {text[:1].lower()}{text[1:]}") from None


def _settings(raw: Any, place: str) -> dict[str, str]:
    """The settings of something else, by its own names: texts all of them."""
    pairs = _flat(_mapping(raw, place))
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in pairs}


def _state(folder: Path, text: str) -> Path | str:
    """The place of state: a folder, or the URL of an object store."""
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    return text if is_url(text) else folder / text


def _place(folder: Path, path: str) -> str:
    """The path of a table: a relative path is relative to the file's folder, a URL says it all."""
    return path if is_url(path) or path.startswith("file:") else str(folder / path)


def _flat(raw: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """`spark.sql.x = 1` without quotes is a table of tables: put together again."""
    found: list[tuple[str, Any]] = []
    for key, value in raw.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return found


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
