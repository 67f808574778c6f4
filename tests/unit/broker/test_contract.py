"""The contract of engines: Protocols by subject, which the engines fulfil (mypy checks that they do)."""

import ast
import pkgutil
import re
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

import penstock
import penstock.broker
import penstock.engines.core.ports
from penstock.broker.capability import Capability, offered, require
from penstock.model.errors import ErrorKind, PenstockError

# The contract is read as a whole: it grows beyond these with a reason only (docs/decisions/0095, 0116, 0118, 0120, 0122).
BOUNDS: Final = {penstock.broker: (34, 285), penstock.engines.core.ports: (8, 34)}


def protocols(package: ModuleType) -> dict[str, ast.ClassDef]:
    """The Protocols of a package, or of a module, by their names."""
    found: dict[str, ast.ClassDef] = {}
    inner = pkgutil.iter_modules(getattr(package, "__path__", ()), package.__name__ + ".")
    for name in [one.name for one in inner] or [package.__name__]:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        for node in ast.parse(Path(spec.origin).read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(b) == "Protocol" for b in node.bases):
                found[node.name] = node
    return found


def members(node: ast.ClassDef) -> int:
    return sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign) for each in node.body)


@pytest.mark.parametrize("package", BOUNDS, ids=lambda package: package.__name__)
def test_the_contract_stays_small(package: ModuleType) -> None:
    found, (protocols_max, members_max) = protocols(package), BOUNDS[package]
    assert len(found) <= protocols_max
    assert sum(map(members, found.values())) <= members_max


def test_no_protocol_is_a_piece_of_one_other() -> None:
    """A subject is one Protocol: a base that nothing else names belongs into the one that has it."""
    source = "\n".join(
        path.read_text("utf-8")
        for package in ("broker", "engines", "protocols", "server", "testing")
        for path in (Path(penstock.__file__).parent / package).rglob("*.py")
    )
    bases = {
        base.id
        for node in protocols(penstock.broker).values()
        for base in node.bases
        if isinstance(base, ast.Name)
    }
    for base in bases - {"Protocol"}:
        named = re.findall(
            rf"(?<![\w.`]){base}(?=[\] |,)])", re.sub(r"^(class|from|import) .*$", "", source, flags=re.M)
        )
        assert named, base


def test_a_missing_capability_is_one_documented_error() -> None:
    with pytest.raises(PenstockError, match="no staged publishing") as caught:
        require(frozenset((Capability.COMPACTION,)), Capability.STAGED_PUBLISH)
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED
    assert caught.value.kind.codes.code == 50101
    require(frozenset((Capability.COMPACTION,)), Capability.COMPACTION)


def test_a_missing_part_is_the_same_error() -> None:
    with pytest.raises(PenstockError, match="has no staged publishing") as caught:
        offered(None, Capability.STAGED_PUBLISH.value)
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED
    part = object()
    assert offered(part, "parts") is part
