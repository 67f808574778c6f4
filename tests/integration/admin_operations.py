"""Pulsar's admin operations and what becomes of each here, as docs/admin.md tells it.

`python -m tests.integration.admin_operations` writes the tables of the page anew.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.protocols.admin.refusals import REFUSALS
from penstock.protocols.admin.routes import OPERATIONS, Paths

LIST: Final = Path(__file__).with_name("pulsar_admin_operations.txt")
PAGE: Final = Path(__file__).parents[2] / "docs" / "admin.md"
BEGIN, END = "<!-- operations: begin -->", "<!-- operations: end -->"

_PATHS: Final = Paths(OPERATIONS, REFUSALS)
_SAMPLES: Final = {"domain": "persistent", "bundle": "0x00000000_0xffffffff"}
_METHODS: Final = ("GET", "PUT", "POST", "DELETE")

# The tables: what their paths begin with, in the order in which a path is asked for.
_TABLES: Final = (
    ("/admin/v2/{domain}/{tenant}/{namespace}/{topic}/subscription/{subscription}", "a subscription"),
    ("/admin/v2/{domain}/{tenant}/{namespace}/{topic}", "a topic"),
    ("/admin/v2/{domain}/{tenant}/{namespace}", "a namespace's topics of a domain"),
    ("/admin/v2/namespaces/{tenant}/{namespace}", "a namespace"),
    ("/admin/v2/schemas/{tenant}/{namespace}/{topic}", "a topic's schemas"),
    ("", "the rest"),
)
_WHOLE: Final = ("/admin/v2/functions", "/admin/v2/worker", "/admin/v2/worker-stats")


class Operation(NamedTuple):
    """One of Pulsar's operations: `kind` is works, fixed or refused; "" where nothing knows it."""

    method: str
    path: str
    kind: str
    reason: str


def operations() -> Iterator[Operation]:
    """Every operation of Pulsar's admin API."""
    for line in LIST.read_text().splitlines():
        if line and not line.startswith("#"):
            method, path = line.split()
            yield _known(method, path)


def _known(method: str, path: str) -> Operation:
    sample = re.sub(r"{(\w+)}", lambda name: _SAMPLES.get(name[1], f"a-{name[1]}"), path)
    found = _PATHS.find(method, sample)
    if found.operation is not None:
        return Operation(method, path, "fixed" if found.operation.fixed else "works", "")
    return Operation(method, path, "refused" if found.reason else "", found.reason)


def tables() -> str:
    """The tables of the page."""
    by_table: dict[str, dict[str, list[Operation]]] = {base: {} for base, _ in _TABLES}
    for one in operations():
        base = next(base for base, _ in _TABLES if one.path == base or one.path.startswith(f"{base}/"))
        path = one.path.removeprefix(base)
        whole = next((f"{prefix}/…" for prefix in _WHOLE if path.startswith(f"{prefix}/")), path)
        by_table[base].setdefault(whole, []).append(one)
    lines: list[str] = []
    for base, what in _TABLES:
        title = f"Below {what}, `{base}`" if base else "What is elsewhere"
        lines += ["", f"### {title}", "", "| path | works | fixed | refused |", "| --- | --- | --- | --- |"]
        lines += [_row(path, found) for path, found in sorted(by_table[base].items())]
    return "\n".join(lines[1:]) + "\n"


def _row(path: str, found: list[Operation]) -> str:
    cells = [f"`{path}`" if path else "itself"]
    for kind in ("works", "fixed", "refused"):
        methods = {one.method for one in found if one.kind == kind}
        cells.append(", ".join(f"`{method}`" for method in _METHODS if method in methods))
    reasons = dict.fromkeys(one.reason for one in found if one.reason)
    if reasons:
        cells[-1] += f": {'; '.join(reasons)}"
    return f"| {' | '.join(cells)} |"


def page() -> str:
    """The page with its tables as they are to be."""
    text = PAGE.read_text()
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{tables()}\n{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(page())
