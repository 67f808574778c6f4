"""Begins a pipeline again: forgets its checkpoint, and empties its tables."""

from collections.abc import Mapping
from typing import Final

import msgspec

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.spec.spec import Spec

from .folder import Folder, Owner
from .state import folder_of

LAST: Final = 2**62  # a batch's number, above all


def forget(spec: Spec) -> list[str]:
    """Reset the progress of the pipeline, and empty its tables, each in one commit; returns the changes.

    Topics keep what they have: what a new checkpoint writes there comes after it, under a new writer's name.
    """
    from .sinks import suffixes  # which needs Spark

    folder = folder_of(spec)
    with folder.locked():
        owner = _check_name(spec, folder)
        query = folder.query()
        named = suffixes(spec, {} if owner is None else owner.sinks)
        folder.forget()
        tables = {
            sink.path: query and f"{query}{named[name]}" for name, sink in spec.sinks.items() if sink.path
        }
        emptied = [
            f"emptied the table {path}"
            for path, writer in tables.items()
            if empty(path, spec.storage, writer)
        ]
    return [f"forgot the checkpoint in {folder.home}", *emptied]


def reset(spec: Spec, start_ms: int) -> None:
    """Let the next run begin with the messages published at or after a time. Sinks keep what they have."""
    for name, source in spec.sources.items():
        if source.format:
            raise PipelineError(
                f"{spec.file}: [sources.{name}]: where format {source.format} begins is said by its options: run full-refresh"
            )
    folder = folder_of(spec)
    with folder.locked():
        _check_name(spec, folder)
        folder.forget()
        folder.own(spec, start_ms)


def empty(path: str, storage: Mapping[str, str], writer: str = "") -> bool:
    """Remove all rows of a table in one commit; False if there is no table.

    Nothing of `writer` comes after it: a run that was thought lost may have a batch on its way.
    """
    from penstock.pipeline.lake.options import is_table, table_at
    from penstock.pipeline.lake.store import Location
    from penstock.pipeline.lake.values import Batch

    folder = Location.of(path, storage)
    if not is_table(folder):
        return False
    table = table_at(folder)
    now = table.snapshot()
    if now is None:
        return False
    nothing = Batch(files=(), schema=now.schema, partition_by=tuple(now.partition_by), overwrite=True)
    table.commit(msgspec.structs.replace(nothing, writer=writer, number=LAST if writer else 0))
    return True


def _check_name(spec: Spec, folder: Folder) -> Owner | None:
    """The owner of the folder. Other sources are a reason to begin again, another pipeline is not."""
    owner = folder.owner()
    if owner is None:
        folder.check_owner(spec)
    elif owner.pipeline != spec.name:
        raise PipelineError(f"{folder.home} belongs to pipeline {owner.pipeline!r}, not to {spec.name!r}")
    return owner
