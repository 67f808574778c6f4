"""Options as Spark hands them over are texts: what they say, read alike by every source and sink."""

from collections.abc import Mapping

from .errors import PipelineError


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
