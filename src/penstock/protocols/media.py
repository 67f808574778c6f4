"""Media types and preferences in headers: `type/subtype; name=value`, and lists with q-values (RFC 9110 12)."""

import re
from collections.abc import Sequence
from typing import Final

_WORD: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_TYPE: Final = re.compile(rf"\s*({_WORD}/{_WORD})\s*")
_PARAMETER: Final = re.compile(rf';\s*(?:({_WORD})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^";,\s]*))\s*)?')
_WEIGHT: Final = re.compile(r"(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?)")
_MEMBERS_MAX: Final = 100  # of one list; what follows is not looked at


def parse_media_type(text: str) -> tuple[str, dict[str, str]] | None:
    """The type in lower case and its parameters, by lower-case name; None for what is no media type."""
    match = _TYPE.match(text)
    if match is None:
        return None
    parameters: dict[str, str] = {}
    at = match.end()
    while at < len(text):
        found = _PARAMETER.match(text, at)
        if found is None:
            return None
        name, quoted, plain = found.groups()
        if name is not None:
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            parameters.setdefault(name.lower(), value)
        at = found.end()
    return match.group(1).lower(), parameters


def weights(header: str) -> dict[str, float]:
    """What a list names, in lower case and without other parameters, with its q-value; a bad one counts as 1."""
    found: dict[str, float] = {}
    for member in header.split(",")[:_MEMBERS_MAX]:
        name, *parameters = (part.strip().lower() for part in member.split(";"))
        if not name:
            continue
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                value = parameter[2:].strip()
                weight = float(value) if _WEIGHT.fullmatch(value) else 1.0
                break
        found[name] = max(weight, found.get(name, 0.0))
    return found


def choose_type(accept: str | None, offered: Sequence[str]) -> str | None:
    """The best of what is offered, the earlier where all is the same; None when nothing is acceptable."""
    if accept is None or not accept.strip():
        return offered[0]
    wanted = weights(accept)
    best, best_weight = None, 0.0
    for name in offered:
        main = name.split("/", 1)[0]
        weight = wanted.get(name, wanted.get(f"{main}/*", wanted.get("*/*", 0.0)))
        if weight > best_weight:
            best, best_weight = name, weight
    return best
