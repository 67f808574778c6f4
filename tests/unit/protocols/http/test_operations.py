"""The router of operations: which path is meant where several could be."""

import re

from penstock.protocols.http.operations import Router


def test_a_literal_segment_goes_before_a_name_and_every_match_is_found() -> None:
    router = Router(["/a/{x}/{y}", "/a/b/{y}", "/a/{x}/c"])
    assert router.find(["a", "b", "c"]) == ("/a/b/{y}", {"y": "c"})
    assert [path for path, _ in router.all(["a", "b", "c"])] == ["/a/b/{y}", "/a/{x}/c", "/a/{x}/{y}"]
    assert router.find(["a", "d", "e"]) == ("/a/{x}/{y}", {"x": "d", "y": "e"})


def test_the_number_of_segments_counts() -> None:
    router = Router(["", "/a", "/a/{x}"])
    assert router.find([]) == ("", {})
    assert router.find(["a"]) == ("/a", {})
    assert router.find(["b"]) is None
    assert router.find(["a", "b", "c"]) is None


def test_a_name_with_a_pattern_stands_for_what_fits_it() -> None:
    router = Router(["/{kind}/{x}", "/{other}/b"], {"kind": re.compile("one|two")})
    assert router.find(["one", "b"]) == ("/{kind}/{x}", {"kind": "one", "x": "b"})
    assert router.find(["three", "b"]) == ("/{other}/b", {"other": "three"})
    assert router.find(["three", "c"]) is None
