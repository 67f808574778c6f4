"""Answers that are kept: within a bound, and as long as the registry's state is the same."""

from penstock.protocols.confluent.registry.kept import KeptAnswers
from penstock.protocols.http.answers import Answer

ONE, OTHER = (b"/registry/schemas/ids/1", b"", b""), (b"/registry/schemas/ids/2", b"", b"")
LARGE = Answer(raw=bytes(5 << 20))


def test_an_answer_that_is_kept_again_counts_once() -> None:
    kept = KeptAnswers()
    assert kept.find(ONE, 1) is None
    for subject in ("a", "b", "a", "b"):  # callers who see different subjects
        kept.keep(ONE, subject, LARGE)
    kept.keep(OTHER, "a", LARGE)
    assert kept.find(ONE, 1) is not None
    assert kept.find(OTHER, 1) is not None
    assert kept.find(ONE, 2) is None
