"""The contract of engines: small Protocols, which the embedded engine fulfils (mypy checks that it does)."""

import ast
import pkgutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

import penstock.broker
import penstock.engines.core.ports
from penstock.broker.capability import Capability, offered, require
from penstock.model.errors import ErrorKind, PenstockError

METHODS_MAX: Final = 7


def protocols() -> list[tuple[str, int]]:
    """Each Protocol with the number of methods it has of its own; properties are fields."""
    found: list[tuple[str, int]] = []
    for package in (penstock.broker, penstock.engines.core.ports):
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            spec = find_spec(module.name)
            assert spec is not None
            assert spec.origin is not None
            tree = ast.parse(Path(spec.origin).read_text("utf-8"))
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and any(ast.unparse(b) == "Protocol" for b in node.bases):
                    found.append((f"{module.name}.{node.name}", sum(map(_is_method, node.body))))
    return found


def _is_method(node: ast.stmt) -> bool:
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    return not any(ast.unparse(decorator) == "property" for decorator in node.decorator_list)


@pytest.mark.parametrize(("name", "methods"), protocols())
def test_a_protocol_has_few_methods(name: str, methods: int) -> None:
    assert methods <= METHODS_MAX


class Engine:
    def __init__(self, *capabilities: Capability) -> None:
        self.capabilities = frozenset(capabilities)


def test_a_missing_capability_is_one_documented_error() -> None:
    with pytest.raises(PenstockError, match="no staged publishing") as caught:
        require(Engine(Capability.COMPACTION), Capability.STAGED_PUBLISH)
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED
    assert caught.value.kind.codes.code == 50101
    require(Engine(Capability.COMPACTION), Capability.COMPACTION)


def test_a_missing_part_is_the_same_error() -> None:
    with pytest.raises(PenstockError, match="has no staged publishing") as caught:
        offered(None, Capability.STAGED_PUBLISH.value)
    assert caught.value.kind is ErrorKind.NOT_SUPPORTED
    part = object()
    assert offered(part, "parts") is part
