"""How a request finds its operation, and which media types it and its answer have, with the texts of Confluent's servers."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from penstock.model.confluent import ConfluentCode, ConfluentError
from penstock.model.errors import PenstockError
from penstock.protocols.http.answers import RefusedError
from penstock.protocols.http.exchange import Exchange
from penstock.protocols.http.media import choose_type, parse_media_type
from penstock.protocols.http.operations import Handlers
from penstock.protocols.http.paths import segments as segments_of

NOT_FOUND: Final = ConfluentCode(404, 404)
NOT_FOUND_TEXT: Final = "HTTP 404 Not Found"


def find_handler(handlers: Handlers, exchange: Exchange) -> tuple[Any, dict[str, str]]:
    """The handler of a request and the names in its path, with or without a slash at the end; raises ConfluentError."""
    segments = segments_of(exchange.scope)
    if len(segments) > 2 and not segments[-1]:
        segments.pop()
    try:
        _, handler, names = handlers.find(exchange.method, segments)
    except RefusedError as error:
        raise ConfluentError(ConfluentCode(405, 405), "HTTP 405 Method Not Allowed") from error
    except PenstockError as error:
        raise ConfluentError(NOT_FOUND, NOT_FOUND_TEXT) from error
    return handler, names


def accepted(exchange: Exchange, offered: Sequence[str]) -> str | None:
    """The media type of the answer; None if no offered one is accepted."""
    return _chosen(exchange.headers.get("accept"), tuple(offered))


@lru_cache(256)
def _chosen(accept: str | None, offered: Sequence[str]) -> str | None:
    # As Confluent's server does: what follows `*/` does not matter.
    return choose_type(re.sub(r"\*/[^,;\s]+", "*/*", accept) if accept else None, offered)


def not_acceptable() -> ConfluentError:
    return ConfluentError(ConfluentCode(406, 406), "HTTP 406 Not Acceptable")


def content_type(exchange: Exchange, taken: Sequence[str]) -> str | None:
    """The media type of the body, None without a header; raises ConfluentError for one that is not `taken`."""
    given = exchange.headers.get("content-type")
    if not given:
        return None
    media, _ = media_type(given)
    if media not in taken:
        raise ConfluentError(ConfluentCode(415, 415), "HTTP 415 Unsupported Media Type")
    return media


@lru_cache(256)
def media_type(given: str) -> tuple[str, str]:
    """The type that a header names, empty if it is not one, and its charset."""
    media = parse_media_type(given)
    return ("", "utf-8") if media is None else (media[0], media[1].get("charset", "utf-8").lower())
