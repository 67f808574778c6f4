import re

from penstock.server.reference import render, welcome


def test_pages_load_nothing_from_elsewhere() -> None:
    document = {
        "info": {"title": "T", "version": "1"},
        "paths": {"/a/{b}": {"get": {"summary": "<b>", "responses": {"200": {"description": "ok"}}}}},
        "components": {
            "schemas": {"S": {"properties": {"x": {"type": "array", "items": {"type": "integer"}}}}}
        },
    }
    for page in (render(document), welcome("1")):
        assert not re.search(r"<(script|link|img|iframe)|@import|url\(", page)
    assert "&lt;b&gt;" in render(document)
    assert "list of integer" in render(document)
