"""Large writes go out in pieces, and whole."""

from typing import Any, cast

import pytest

from penstock.protocols.transport import PIECE_BYTES, Pieces


class Written:
    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: Any) -> None:
        self.pieces.append(bytes(data))

    def is_closing(self) -> bool:
        return True


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 10 * PIECE_BYTES - 1])
def test_whole_and_in_order(size: int) -> None:
    data = bytes(number % 251 for number in range(size))
    written = Written()
    transport = Pieces(cast(Any, written))
    transport.write(data)
    assert b"".join(written.pieces) == data
    assert max(map(len, written.pieces)) <= PIECE_BYTES
    written.pieces.clear()
    transport.writelines([data, b"", data])
    assert b"".join(written.pieces) == data * 2
    assert transport.is_closing()
