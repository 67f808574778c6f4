"""The options of typed reading."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.pipeline.errors import PipelineError

NAMES: Final = ("value.decode", "readerSchema", "onNewSchema", "mode", "keepBytes")

_CHOICES: Final = {
    "value.decode": ("none", "struct", "flat"),
    "onNewSchema": ("ignore", "fail", "restart"),
    "mode": ("failfast", "permissive", "dead_letter"),
    "keepBytes": ("false", "true"),
}
_LATEST: Final = -1


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """How values are decoded. `version` is the reader's schema, below 0 the newest; `ddl` stands in its place."""

    flat: bool
    version: int = _LATEST
    ddl: str = ""
    on_new: str = "ignore"
    mode: str = "failfast"
    keep_bytes: bool = False  # every row's message as it came, beside what it was decoded to

    @property
    def keeps_broken(self) -> bool:
        """Whether broken rows are kept, with columns that say why."""
        return self.mode != "failfast"


def parse_typed(texts: Mapping[str, str]) -> Typed | None:
    """The options of typed reading, None where values stay bytes. Raises PipelineError, which names the option."""
    decode = _choice(texts, "value.decode")
    if decode == "none":
        for name in NAMES[1:]:
            if name in texts:
                raise PipelineError(f"option {name} needs value.decode=struct or flat")
        return None
    version, ddl = _reader(texts.get("readerSchema", "latest").strip())
    return Typed(
        flat=decode == "flat",
        version=version,
        ddl=ddl,
        on_new=_choice(texts, "onNewSchema"),
        mode=_choice(texts, "mode"),
        keep_bytes=_choice(texts, "keepBytes") == "true",
    )


def _choice(texts: Mapping[str, str], name: str) -> str:
    choices = _CHOICES[name]
    text = texts.get(name, choices[0]).strip().lower()
    if text not in choices:
        raise PipelineError(f"option {name}: {texts[name]!r} is none of {', '.join(choices)}")
    return text


def _reader(text: str) -> tuple[int, str]:
    kind, mark, rest = text.partition(":")
    match kind.strip().lower():
        case "latest" if not mark:
            return _LATEST, ""
        case "version" if rest.strip().isascii() and rest.strip().isdigit() and len(rest) < 19:
            return int(rest), ""
        case "ddl" if rest.strip():
            return _LATEST, rest.strip()
    raise PipelineError(f"option readerSchema: {text!r} is none of latest, version:N and ddl:COLUMNS")
