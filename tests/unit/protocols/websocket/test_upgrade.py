import pytest

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.protocols.websocket.upgrade import Target, decode_segment, parse_path

T = TopicName.of("persistent", "public", "default", "t")


@pytest.mark.parametrize(
    ("raw", "target"),
    [
        (b"/ws/v2/producer/persistent/public/default/t", Target("producer", T)),
        (b"/ws/v2/producer/persistent/public/default/t/", Target("producer", T)),
        (b"/ws/v2/reader/persistent/public/default/t/", Target("reader", T)),
        (b"/ws/v2/consumer/persistent/public/default/t/sub", Target("consumer", T, "sub")),
        (b"/ws/v2/consumer/persistent/public/default/t/a+b%2Fc", Target("consumer", T, "a b/c")),
        (b"/ws/v3/consumer/my%20sub", Target("consumer", None, "my sub")),
        (
            b"/ws/v2/producer/non-persistent/public/default/a%2Fb+c%2B",
            Target("producer", TopicName.of("non-persistent", "public", "default", "a/b c+")),
        ),
        (
            b"/ws/v2/producer/persistent/public/default/%C3%A9",
            Target("producer", TopicName.of("persistent", "public", "default", "é")),
        ),
    ],
)
def test_what_a_path_names(raw: bytes, target: Target) -> None:
    assert parse_path(raw) == target


@pytest.mark.parametrize(
    ("raw", "kind", "text"),
    [
        (b"/ws/v2/producer/persistent/public/default", ErrorKind.BAD_PARAMETER, "Invalid topic name format"),
        (b"/ws/v2/producer/persistent/public/default/a/b", ErrorKind.BAD_PARAMETER, "%2F"),
        (b"/ws/v2/producer/quick/public/default/t", ErrorKind.INVALID_NAME, "domain"),
        (b"/ws/v2/producer/persistent/pub%20lic/default/t", ErrorKind.INVALID_NAME, "tenant"),
        (b"/ws/v2/consumer/persistent/public/default/t", ErrorKind.BAD_PARAMETER, "Empty subscription name"),
        (b"/ws/v2/consumer/persistent/public/default/t/", ErrorKind.BAD_PARAMETER, "Empty subscription name"),
        (
            b"/ws/v2/consumer/persistent/public/default/t/+",
            ErrorKind.BAD_PARAMETER,
            "Empty subscription name",
        ),
        (b"/ws/v2/consumer/persistent/public/default/t/s/x", ErrorKind.BAD_PARAMETER, "Invalid topic"),
        (b"/ws/v3/consumer", ErrorKind.BAD_PARAMETER, "Invalid topic name format"),
        (b"/ws/v3/consumer/s/x", ErrorKind.BAD_PARAMETER, "Invalid topic name format"),
        (b"/ws/v3/producer/s", ErrorKind.NOT_FOUND, "endpoint"),
        (b"/ws/producer/persistent/property/cluster/ns/topic", ErrorKind.NOT_FOUND, "endpoint"),
        (b"/ws", ErrorKind.NOT_FOUND, "endpoint"),
        (b"/ws/v2/producer/persistent/public/default/a%zz", ErrorKind.BAD_PARAMETER, "escape"),
        (b"/ws/v2/producer/persistent/public/default/a%", ErrorKind.BAD_PARAMETER, "escape"),
        (b"/ws/v2/producer/persistent/public/default/%ff", ErrorKind.BAD_PARAMETER, "UTF-8"),
        (b"/ws/v2/producer/persistent/public/default/%00", ErrorKind.INVALID_NAME, "control"),
    ],
)
def test_what_is_no_endpoint(raw: bytes, kind: ErrorKind, text: str) -> None:
    with pytest.raises(PenstockError, match=text) as caught:
        parse_path(raw)
    assert caught.value.kind is kind


def test_segments_are_decoded_as_java_does() -> None:
    assert decode_segment(b"a+b%20c%2B%25") == "a b c+%"
