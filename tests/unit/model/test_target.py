"""Targets of requests: no name becomes structure of a path."""

from urllib.parse import unquote, unquote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.model.target import Target, problem_of

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_TRICKY = st.text(st.sampled_from("./%2eEfF5cC;\\+ ?#a"), max_size=12)


@given(st.lists(_TEXT | _TRICKY, min_size=1, max_size=8))
def test_a_path_has_the_segments_that_it_was_made_of(segments: list[str]) -> None:
    if any(problem_of(one) for one in segments):
        with pytest.raises(PenstockError):
            Target.of(*segments)
        return
    target = Target.of(*segments)
    parts = target.path.split("/")[1:]
    assert [unquote(part) for part in parts] == segments
    assert not set("".join(parts)) & set("?#;\\+ ")
    assert not {".", "..", ""} & {unquote(unquote(part)) for part in parts}
    assert target.is_path(target.path)


@pytest.mark.parametrize(
    "segment",
    ["", ".", "..", "%2e%2e", "%2E.", "%252e%252E", "%25252525252e", "a\x00", "a\n", "%00", "\x85", "\ud800"],
)
def test_a_segment_that_could_be_structure_is_no_target(segment: str) -> None:
    with pytest.raises(PenstockError) as refused:
        Target.of("admin", segment)
    assert refused.value.kind is ErrorKind.INVALID_NAME


@given(_TEXT | _TRICKY)
def test_what_pulsar_decodes_twice_is_the_same_name(name: str) -> None:
    """Its brokers decode a segment by RFC 3986, and then as a form."""
    topic = TopicName("persistent", "t", "n", name)
    for make, place in (
        (lambda: Target.of_subscription(TopicName("persistent", "t", "n", "x"), name, "skip_all"), 7),
        (lambda: Target.of_schemas(topic, "schema"), 5),
    ):
        try:
            path = make().path
        except PenstockError:
            continue
        assert unquote_plus(unquote(path.split("/")[1:][place])) == name
