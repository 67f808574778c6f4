"""Options as Spark hands them over, texts all of them, read alike by every source and sink; and those of the server."""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from penstock.client.access import Access
from penstock.model.errors import PenstockError

from .errors import PipelineError
from .neighbours import unknown

# A token comes by reference only: options appear in plans, in logs and in the catalogue.
_FIELDS: Final = {
    "tokenFile": "token_file",
    "tokenEnv": "token_env",
    "tlsCaFile": "ca_file",
    "tlsCertFile": "cert_file",
    "tlsKeyFile": "key_file",
}

NAMES: Final = ("url", *_FIELDS)

STORAGE: Final = "storage."  # before the name of an option of an object store
ENVIRONMENT: Final = "env:"  # a value that is looked up where it is used: for secrets

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_url(path: str) -> bool:
    """Whether a table's path is a URL, and not a folder of a file system."""
    return _URL.match(path) is not None


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """An object store's options as a data source takes them."""
    return {f"{STORAGE}{name}": text for name, text in options.items()}


def shown(struct: msgspec.Struct, *secret: str) -> str:
    """What `repr` says of a struct, without the values of mappings that may hold credentials: `secret` are their fields."""
    texts = []
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        texts.append(f"{name}={dict.fromkeys(value, '…') if name in secret else value!r}")
    return f"{type(struct).__name__}({', '.join(texts)})"


def revealed(option: str, text: str) -> str:
    """The value of an option that may name an environment variable. Raises PipelineError if that is not set."""
    if not text.startswith(ENVIRONMENT):
        return text
    variable = text.removeprefix(ENVIRONMENT)
    if variable not in os.environ:
        raise PipelineError(f"option {option}: the environment variable {variable} is not set")
    return os.environ[variable]


def split_storage(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """The options of the object store, and the others."""
    return split_prefixed(given, STORAGE)


def split_prefixed(given: Mapping[str, str], prefix: str) -> tuple[dict[str, str], dict[str, str]]:
    """The options whose names begin with a prefix, without it and in lower case, and the others."""
    found, others = {}, {}
    for name, text in given.items():
        if name.lower().startswith(prefix):
            found[name[len(prefix) :].lower()] = text
        else:
            others[name] = text
    return found, others


def named(
    given: Mapping[str, str],
    names: Sequence[str],
    ignored: Sequence[str] = (),
    hints: Mapping[str, str] = {},
) -> dict[str, str]:
    """The options by the names they have here, as Spark hands them over in lower case. `ignored` are Spark's own.

    Raises PipelineError for an option that is neither, with what is meant (`hints`, by lower-case name).
    """
    known = {name.lower(): name for name in names}
    texts: dict[str, str] = {}
    for key, text in given.items():
        if name := known.get(key.lower()):
            texts[name] = text
        elif key.lower() not in ignored:
            raise PipelineError(unknown(key, names, hints))
    return texts


def parse_server(texts: Mapping[str, str]) -> Access:
    """The server that options name. Raises PipelineError, which names the option."""
    url = texts.get("url", "").strip()
    if not url:
        raise PipelineError("option url is missing: the server's address, like http://127.0.0.1:8080")
    given = {field: texts[name].strip() for name, field in _FIELDS.items() if name in texts}
    if given.get("token_file") and given.get("token_env"):
        raise PipelineError("options tokenFile and tokenEnv exclude one another")
    if given.get("key_file") and not given.get("cert_file"):
        raise PipelineError("option tlsKeyFile needs tlsCertFile")
    try:
        return Access(url=url, **given)
    except PenstockError as error:
        raise PipelineError(f"option url: {error.message}") from None


def server_options(server: Access) -> dict[str, str]:
    """What `parse_server` reads. Raises PipelineError for a token that is given as text."""
    if server.token:
        raise PipelineError(
            "a token for Spark is named by a file or an environment variable, not given as text"
        )
    given = {name: text for name, field in _FIELDS.items() if (text := getattr(server, field))}
    return {"url": server.url, **given}


def number(texts: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    """A whole number from `least` on. Raises PipelineError, which names the option."""
    text = texts.get(name)
    if text is None:
        return default
    if not text.strip().isascii() or not text.strip().isdigit() or not least <= int(text) < 1 << 62:
        raise PipelineError(f"option {name}: {text!r} is no whole number from {least} on")
    return int(text)


def flag(texts: Mapping[str, str], name: str, *, default: bool) -> bool:
    """`true` or `false`, in any case. Raises PipelineError, which names the option."""
    match texts.get(name, str(default)).strip().lower():
        case "true":
            return True
        case "false":
            return False
    raise PipelineError(f"option {name}: {texts[name]!r} is neither true nor false")
