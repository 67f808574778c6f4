from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.protocols.websocket.frames import decode_base64 as decode
from penstock.protocols.websocket.frames import encode_base64 as encode


@given(st.binary())
def test_round_trip_with_and_without_padding(data: bytes) -> None:
    assert encode(data) == b64encode(data).decode()
    assert decode(encode(data)) == data
    assert decode(encode(data).rstrip("=")) == data


@pytest.mark.parametrize(
    "text", ["=", "a", "a===", "ab=", "ab===", "a b=", "ab\n==", "ab-_", "é", "ab==cd=="]
)
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(text)
