"""Reads a pipeline's file. Every refusal is one sentence that names the file, the table and the key."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.client.access import Access
from penstock.model.errors import PenstockError
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.options import SERVER, is_url

from .rules import check_rules
from .settings import Settings, apply_settings, literal_secrets, with_variables
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
    """Read the file and check it; what is given beside it wins. `settings`: see `apply_settings`. Raises PipelineError."""
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
    _known(content, (*_SCALARS, *_TABLES), file, "")
    if "name" not in content:
        raise PipelineError(f"{file}: name is missing: what the pipeline is called")
    given: dict[str, Any] = {
        key: _convert(content[key], str, file, "", key)
        for key in _SCALARS
        if key in content and key not in ("output", "state")
    }
    if "output" in content:
        given["output"] = _convert(content["output"], _type(Spec, "output"), file, "", "output")
    state = _convert(content.get("state", STATE), str, file, "", "state")
    if "schema_registry" in content:
        given["schema_registry"] = _access(content, "schema_registry", file, folder, _REGISTRY, "")
    sinks = _named(content, "sinks", Sink, file, folder)
    if any(sink.path for sink in sinks.values()):
        given.setdefault("trigger", TABLE_TRIGGER)
    spec = Spec(
        **given,
        server=_access(content, "server", file, folder, _SERVER, "http://127.0.0.1:8080"),
        sources=_named(content, "sources", Source, file, folder),
        tables=_named(content, "tables", Lookup, file, folder),
        steps=_steps(content.get("steps", []), file),
        sinks=sinks,
        storage=_settings(content, "storage", file),
        lineage=_struct(content.get("lineage", {}), Lineage, file, "[lineage]"),
        spark=_settings(content, "spark", file),
        state=_state(folder, state),
        folder=folder,
        file=file,
    )
    check_rules(spec)
    return spec


def _access(
    content: Mapping[str, Any], kind: str, file: str, folder: Path, keys: tuple[str, ...], url: str
) -> Access:
    """A server's address, in the table `kind`, whose `url` is this one unless it is given."""
    place = f"[{kind}]"
    raw = _mapping(content.get(kind, {}), file, place)
    _known(raw, keys, file, place)
    texts = {key: _convert(raw[key], str, file, place, key) for key in raw}
    for key in _FILES:
        if texts.get(key):
            texts[key] = str(folder / texts[key])
    ways = [key for key in ("token_file", "token_env", "basic_env") if texts.get(key)]
    if len(ways) > 1:
        raise PipelineError(f"{file}: {place} {' and '.join(ways)} exclude one another")
    if texts.get("key_file") and not texts.get("cert_file"):
        raise PipelineError(f"{file}: {place} key_file needs cert_file")
    try:
        return Access(**{"url": url, **texts})
    except PenstockError as error:
        raise PipelineError(f"{file}: {place} url: {error.message}") from None


def _named(content: Mapping[str, Any], kind: str, type_: type[T], file: str, folder: Path) -> dict[str, T]:
    """The tables `[kind.name]`, whose paths are relative to the file's folder."""
    found: dict[str, T] = {}
    for name, raw in _mapping(content.get(kind, {}), file, f"[{kind}]").items():
        made: Any = _struct(raw, type_, file, f"[{kind}.{name}]")
        if path := getattr(made, "path", ""):
            made = msgspec.structs.replace(made, path=_place(folder, path))
        if made.format.lower() in _FILES_FORMATS and (path := made.options.get("path")):
            made = msgspec.structs.replace(made, options={**made.options, "path": _place(folder, path)})
        found[name] = made
    return found


def _steps(raw: Any, file: str) -> tuple[Step, ...]:
    if not isinstance(raw, list):
        raise PipelineError(f"{file}: [steps]: steps are written [[steps]], in the order in which they run")
    return tuple(_struct(one, Step, file, _place_of(one, n)) for n, one in enumerate(raw, 1))


def _place_of(raw: Any, number: int) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    return f"[[steps]] {name}" if isinstance(name, str) else f"[[steps]] number {number}"


def _struct(raw: Any, type_: type[T], file: str, place: str) -> T:
    """A table of the file as the struct it makes; each key is converted by itself, so that it can be named."""
    table = _mapping(raw, file, place)
    fields = {field.name: field for field in msgspec.structs.fields(type_)}
    _known(table, tuple(fields), file, place)
    for name, field in fields.items():
        if field.required and name not in table:
            raise PipelineError(f"{file}: {place} {name} is missing")
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key == "watermark":
            values[key] = _struct(value, Watermark, file, f"{place} watermark")
        elif key == "options":
            values[key] = _settings({key: value}, key, file, place)
        elif key == "expect":
            if not isinstance(value, list):
                raise PipelineError(f"{file}: {place} expect: a list of tables is expected")
            values[key] = tuple(
                _struct(one, Expectation, file, f"{place} expect, number {n}")
                for n, one in enumerate(value, 1)
            )
        else:
            values[key] = _convert(value, fields[key].type, file, place, key)
    return type_(**values)


def _known(raw: Mapping[str, Any], names: tuple[str, ...], file: str, place: str) -> None:
    for key in raw:
        if key not in names:
            like = difflib.get_close_matches(key, names, 1)
            hint = f"did you mean {like[0]}?" if like else f"there are {', '.join(names)}"
            where = f"{place} " if place else ""
            raise PipelineError(f"{file}: {where}{key}: unknown key; {hint}")


def _mapping(raw: Any, file: str, place: str) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise PipelineError(f"{file}: {place}: a table is expected")
    return raw


def _convert(value: Any, type_: Any, file: str, place: str, key: str) -> Any:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        where = f"{place} " if place else ""
        raise PipelineError(f"{file}: {where}{key}: {_lower(str(error))}") from None


def _type(struct: type, name: str) -> Any:
    return next(field.type for field in msgspec.structs.fields(struct) if field.name == name)


def _settings(content: Mapping[str, Any], kind: str, file: str, place: str = "") -> dict[str, str]:
    """The settings of something else, by its own names: texts all of them."""
    table = _mapping(content.get(kind, {}), file, f"{place} {kind}" if place else f"[{kind}]")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in _flat(table)}


def _state(folder: Path, text: str) -> Path | str:
    """Where state is: a folder, or the URL of an object store."""
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    return text if is_url(text) else folder / text


def _place(folder: Path, path: str) -> str:
    """Where a table is: a relative path is relative to the file's folder, a URL says it all."""
    return path if is_url(path) or path.startswith("file:") else str(folder / path)


def _flat(raw: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """`spark.sql.x = 1` without quotes is a table of tables: put together again."""
    found: list[tuple[str, Any]] = []
    for key, value in raw.items():
        name = f"{prefix}{key}"
        found += _flat(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return found


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
