"""Hypothesis strategies for messages, shared by the tests of this package."""

from hypothesis import strategies as st

from penstock.model.message import OutMessage

INT63 = st.integers(0, 2**63 - 1)
SEQUENCE = st.integers(0, 2**40)
TEXT = st.text(max_size=20)
PAYLOAD = st.binary(max_size=200)


@st.composite
def out_messages(draw: st.DrawFn, delayed: bool = True, own_ids: bool = True) -> OutMessage:
    """Any message; not every combination makes sense, but every one has bytes."""
    key = draw(st.none() | TEXT)
    return OutMessage(
        payload=draw(PAYLOAD),
        key=key,
        key_is_base64=key is not None and draw(st.booleans()),
        ordering_key=draw(st.none() | st.binary(max_size=20)),
        properties=draw(st.none() | st.dictionaries(TEXT, TEXT, max_size=3)),
        event_time=draw(st.just(0) | INT63),
        deliver_at=draw(st.just(0) | INT63) if delayed else 0,
        sequence_id=draw(st.none() | SEQUENCE) if own_ids else None,
        replicate_to=draw(st.none() | st.lists(TEXT, min_size=1, max_size=2)),
        null_value=draw(st.booleans()),
    )
