"""Compressed bodies: what they unfold to, within bounds, and what is counted as held meanwhile."""

import asyncio
import gzip
import zlib
from hashlib import sha256
from typing import Any

import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.protocols.holding import STATE_KEY, Holding
from penstock.protocols.http.compression import (
    FIRST_PIECE_BYTES,
    INLINE_BYTES,
    RATIO_FREE_BYTES,
    RATIO_MAX,
    unfold,
    unfolded,
)
from penstock.protocols.load import Load
from penstock.protocols.rates import SCOPE_KEY, Rates
from penstock.server.dispatch import AsgiExchange
from penstock.testing.clock import ManualClock

TEXT = b'{"messages": [{"value": "tea"}]}'
MOST = 1_000_000


def deflated(data: bytes, window: int) -> bytes:
    made = zlib.compressobj(wbits=window)
    return made.compress(data) + made.flush()


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(TEXT)),
        (" GZip ", gzip.compress(TEXT)),
        ("x-gzip, identity", gzip.compress(TEXT)),
        ("gzip", gzip.compress(TEXT[:9]) + gzip.compress(TEXT[9:]) + b"\0" * 7),
        ("deflate", deflated(TEXT, 15)),
        ("deflate", deflated(TEXT, -15)),
        ("identity", TEXT),
        ("", TEXT),
    ],
)
def test_what_was_compressed(coding: str, body: bytes) -> None:
    assert unfold(coding, body, len(TEXT)) == TEXT


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "gzip, deflate"])
def test_other_codings_are_refused_with_those_that_there_are(coding: str) -> None:
    with pytest.raises(PenstockError, match="gzip and deflate are") as caught:
        unfold(coding, b"x", MOST)
    assert caught.value.kind is ErrorKind.BAD_MEDIA_TYPE


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", b""),
        ("gzip", b"\0\0"),
        ("gzip", TEXT),
        ("gzip", gzip.compress(TEXT)[:-1]),
        ("gzip", gzip.compress(TEXT) + b"x"),
        ("deflate", b""),
        ("deflate", TEXT),
        ("deflate", deflated(TEXT, 15)[:-1]),
        ("deflate", deflated(TEXT, 15) + b"x"),
    ],
)
def test_broken_data(coding: str, body: bytes) -> None:
    with pytest.raises(PenstockError) as caught:
        unfold(coding, body, MOST)
    assert caught.value.kind is ErrorKind.BAD_ENCODING


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_the_bound_is_of_what_it_unfolds_to(pack: Any) -> None:
    coding = "gzip" if pack is gzip.compress else "deflate"
    whole = bytes(range(256)) * 40
    assert unfold(coding, pack(whole), len(whole)) == whole
    for body, most in ((pack(whole), len(whole) - 1), (pack(bytes(MOST)), MOST)):
        with pytest.raises(PenstockError, match="unfolds to more") as caught:
            unfold(coding, body, most)
        assert caught.value.kind is ErrorKind.TOO_LARGE


def test_members_share_the_bound() -> None:
    member = gzip.compress(bytes(RATIO_FREE_BYTES))
    assert len(member) * RATIO_MAX < RATIO_FREE_BYTES
    with pytest.raises(PenstockError) as caught:
        unfold("gzip", member * 3, MOST)
    assert caught.value.kind is ErrorKind.TOO_LARGE


def test_many_members() -> None:
    members = [b"%d," % number for number in range(20_000)]
    body = b"".join(gzip.compress(one, 1) + b"\0" * (number % 3) for number, one in enumerate(members))
    assert unfold("gzip", body, MOST) == b"".join(members)


def test_members_longer_than_a_piece() -> None:
    noise = b"".join(sha256(b"%d" % number).digest() for number in range(1000))
    for size in (0, FIRST_PIECE_BYTES - 30, FIRST_PIECE_BYTES, 3 * FIRST_PIECE_BYTES, len(noise)):
        member = gzip.compress(noise[:size])
        assert (
            unfold("gzip", member + gzip.compress(TEXT) + member, MOST) == noise[:size] + TEXT + noise[:size]
        )
    with pytest.raises(PenstockError, match="unfolds to more"):
        unfold("gzip", gzip.compress(noise), len(noise) - 1)
    with pytest.raises(PenstockError, match="cut short"):
        unfold("gzip", gzip.compress(TEXT) + gzip.compress(noise)[:-1], MOST)


def test_a_member_is_not_given_the_rest_of_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decompressor copies what follows its stream: all of the rest for each member would be quadratic."""
    given: list[int] = []

    class Counting:
        def __init__(self, window: int) -> None:
            self._real = decompressobj(window)

        def decompress(self, data: bytes, most: int) -> bytes:
            given.append(len(data))
            return self._real.decompress(data, most)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    decompressobj = zlib.decompressobj
    monkeypatch.setattr(zlib, "decompressobj", Counting)
    body = gzip.compress(b"") * 1000
    assert unfold("gzip", body, MOST) == b""
    assert len(given) == 1000
    assert max(given) <= FIRST_PIECE_BYTES
    given.clear()
    assert unfold("gzip", gzip.compress(TEXT * 1000, 0), MOST) == TEXT * 1000
    assert len(given) < 10  # a long one takes few, as each may wait for the interpreter's lock


async def test_large_ones_are_unfolded_in_a_thread() -> None:
    whole = b"".join(b"%d" % number for number in range(20_000))
    packed = gzip.compress(whole)
    assert len(packed) > INLINE_BYTES
    assert await unfolded("gzip", packed, MOST) == whole


@pytest.mark.parametrize("coding", ["identity", "", " , Identity"])
async def test_a_body_that_is_not_compressed_needs_no_thread(
    coding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(asyncio, "to_thread")
    body = bytes(INLINE_BYTES + 1)
    assert await unfolded(coding, body, MOST) is body


def asked(body: bytes, *codings: bytes, **scope: Any) -> AsgiExchange:
    async def receive() -> Any:
        return {"type": "http.request", "body": body}

    headers = [(b"content-encoding", coding) for coding in codings]
    return AsgiExchange({"method": "POST", "headers": headers, **scope}, receive, None)  # type: ignore[arg-type]


async def test_what_it_unfolds_to_counts_as_held_until_the_request_was_served() -> None:
    load = Load(100, 100, 50_000, 1)
    state = {STATE_KEY: Holding(load, "10.0.0.1")}
    first, second = (asked(gzip.compress(bytes(size)), b"gzip", state=state) for size in (40_000, 20_000))
    assert len(await first.body(MOST)) == 40_000
    assert load.held == 40_000
    with pytest.raises(PenstockError) as caught:
        await second.body(MOST)
    assert caught.value.kind is ErrorKind.UNAVAILABLE
    second.release()
    first.release()
    first.release()
    assert load.held == 0


@pytest.mark.parametrize("coding", [b"identity", b""])
async def test_a_body_that_is_not_compressed_is_not_held_twice(coding: bytes) -> None:
    load = Load(100, 100, 50_000, 1)
    exchange = asked(bytes(10_000), coding, state={STATE_KEY: Holding(load, "10.0.0.1")})
    assert len(await exchange.body(MOST)) == 10_000
    assert (load.held, exchange.unfolded_bytes) == (0, 0)


async def test_several_lines_are_one_list_of_codings() -> None:
    assert await asked(gzip.compress(TEXT), b"gzip", b"identity").body(MOST) == TEXT
    with pytest.raises(PenstockError, match="'gzip, deflate' is not understood") as caught:
        await asked(gzip.compress(TEXT), b"gzip", b"deflate").body(MOST)
    assert caught.value.kind is ErrorKind.BAD_MEDIA_TYPE


async def test_the_rate_of_a_role_counts_what_it_unfolds_to() -> None:
    allowance = Rates(ManualClock(), 0, 1000, {}).of("shop")
    assert allowance is not None
    exchange = asked(gzip.compress(bytes(5500)), b"gzip", **{SCOPE_KEY: allowance})
    assert len(await exchange.body(MOST)) == 5500
    assert allowance.take(0, 0) == 4500  # ms to wait: the first second's bytes were due


async def test_what_grows_by_compression_costs_what_was_sent() -> None:
    allowance = Rates(ManualClock(), 0, 1000, {}).of("shop")
    assert allowance is not None
    body = gzip.compress(b"", mtime=0) * 100
    exchange = asked(body, b"gzip", **{SCOPE_KEY: allowance})
    assert await exchange.body(MOST) == b""
    assert allowance.take(0, 0) == len(body) - 1000
