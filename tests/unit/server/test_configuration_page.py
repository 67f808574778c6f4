from pathlib import Path

import msgspec

from penstock.server.config import Config

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"


def test_the_page_tells_every_key_with_its_default() -> None:
    rows = {}
    for line in PAGE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) >= 3:
            rows[cells[0].strip("`")] = cells[1].strip("`")
    keys = {}
    for section in msgspec.structs.fields(Config):
        for field in msgspec.structs.fields(type(section.default)):
            keys[f"{section.name}.{field.name}"] = shown(default_of(field))
    assert rows == keys


def default_of(field: msgspec.structs.FieldInfo) -> object:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
