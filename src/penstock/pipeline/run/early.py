"""What can be known of a pipeline's columns and functions before Spark is started: a mistake there is said at once.

The columns of sources are known, and of the steps that leave them as they are. What SQL makes of them, Spark alone
knows. Nothing is checked here that is not checked again when the pipeline is planned.

The user's modules are read, but not imported: their code may ask for the Spark session as it is imported (`f.col` does),
or would start one of its own.
"""

import ast
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pyspark.sql.types import StructType

from penstock.pipeline.decode.decoders import column_type
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.source.query import table_schema
from penstock.pipeline.spec.options import source_options
from penstock.pipeline.spec.spec import Spec, Step

from .checks import HIDDEN
from .outputs import check_column
from .schemas import schema_for
from .views import check_columns, check_time, first_on_path, named

_COLUMNS: Final = ("key", "properties", "event_time", "ordering_key", "topic_column")


def check_early(spec: Spec) -> None:
    """Raises PipelineError, which names the place. Asks the server for schemas; runs nothing of the user's."""
    known: dict[str, StructType] = {}
    for name, source in spec.sources.items():
        with named(spec, f"[sources.{name}]"):
            if source.format:  # Spark alone knows its columns
                if source.decode != "none":
                    column_type(schema_for(spec, source.reader_schema))
                continue
            schema = known[name] = table_schema(source_options(spec, name, source))
            if source.watermark is not None:
                check_time(schema, source.watermark.column)
    for step in spec.steps:
        with named(spec, f"[[steps]] {step.name}"):
            _check_step(spec, step, known)
    for name, sink in spec.sinks.items():
        if sink.python:
            with named(spec, f"[sinks.{name}]"):
                check_callable(spec.folder, sink.python, "python")
        if sink.input in known:
            there = [column for column in known[sink.input].names if column not in HIDDEN]
            values = (sink.value,) if isinstance(sink.value, str) else sink.value
            named_columns = [("value", column) for column in values if column]
            named_columns += [(key, column) for key in _COLUMNS if (column := getattr(sink, key))]
            for key, column in named_columns:
                check_column(spec, name, key, column, there)


def _check_step(spec: Spec, step: Step, known: dict[str, StructType]) -> None:
    for key in ("python", "stateful"):
        if text := getattr(step, key):
            check_callable(spec.folder, text, key)
    before = known.get(step.inputs[0]) if step.inputs else None
    if before is None:
        return
    check_columns(before, "keys", step.keys)
    if step.deduplicate:
        check_columns(before, "deduplicate", step.deduplicate)
        known[step.name] = before
        if step.watermark is not None:
            check_time(before, step.watermark.column)


def check_callable(folder: Path, text: str, where: str) -> None:
    """Raises PipelineError for a module that is not there or is no Python, or that has nothing of the name, as
    `load_callable` does later. What cannot be known without running code passes."""
    module, _, name = text.partition(":")
    with first_on_path(folder):
        found = _found(module, where)
    if found is None or found.origin is None or not found.origin.endswith(".py"):
        return
    try:
        tree = ast.parse(Path(found.origin).read_bytes(), found.origin)
    except (SyntaxError, ValueError) as error:
        raise PipelineError(
            f"{where}: module {module} fails when it is imported: {type(error).__name__}: {error}"
        ) from None
    except OSError:
        return
    if not {name, "*", "__getattr__", "globals"} & _names(tree):
        raise PipelineError(f"{where}: module {module} has no function or class {name}")


def _found(module: str, where: str) -> ModuleSpec | None:
    """Where a module is; None where only its package's code may know."""
    top, *rest = module.split(".")
    name = top
    try:
        found = find_spec(top)
    except ValueError:  # it is imported, and nothing tells from where
        return None
    if found is None:
        raise PipelineError(f"{where}: module {module} cannot be imported: No module named {top!r}")
    for part in rest:
        name = f"{name}.{part}"
        found = PathFinder.find_spec(name, found.submodule_search_locations or [])
        if found is None:
            return None
    return found


def _names(tree: ast.Module) -> set[str]:
    """All names that a module's code has, wherever it is."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.alias(name=name, asname=other):
                names.add(other or name)
    return names
