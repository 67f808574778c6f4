"""The name under which each sink of a pipeline writes, and whether a changed file may repeat a batch that was begun.

A sink knows a repeated batch by its writer's name: the query's id and a suffix. The suffix that a sink first had is kept in
`owner.json`, by what the sink writes to, however the file names or surrounds the sink later. A batch that was begun and that some
sink has is finished with the sinks that it was begun with: a sink that is gone would lack it, and dead letters that move to
another sink's commit would be written twice.
"""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.http.stages import Stages
from penstock.pipeline.sink.options import Delivery
from penstock.pipeline.spec.spec import Sink, Source, Spec, Step

from .checks import rejects
from .folder import Folder, SinkWriter
from .lateness import interrupted

DEAD_WRITER: Final = "dead-letters"  # of dead letters that no sink's commit takes

_TOPIC: Final = "topic "
_TABLE: Final = "table "

Writers = dict[str, SinkWriter]


def suffixes(spec: Spec, known: Mapping[str, SinkWriter]) -> dict[str, str]:
    """What follows the query's id in the name of each sink's writer. `known` are the writers of the checkpoint's last run."""
    targets = {name: _target(spec, sink) for name, sink in spec.sinks.items()}
    found = {
        name: known[name].suffix
        for name, target in targets.items()
        if name in known and known[name].target == target
    }
    for name, target in targets.items():
        renamed = [one for one in targets if one not in found and targets[one] == target]
        free = {one.suffix for one in known.values() if one.target == target} - set(found.values())
        if renamed == [name] and len(free) == 1:
            found[name] = free.pop()
    taken = {one.suffix for one in known.values()}
    for name in targets:
        if name in found:
            continue
        if name in known and known[name].suffix not in found.values():
            found[name] = known[name].suffix
            continue
        suffix = "" if not known and _is_alone(spec) else f"-{name}"
        while suffix in taken:
            suffix += "-"
        found[name] = suffix
        taken.add(suffix)
    return found


def plan_writers(spec: Spec, known: Mapping[str, SinkWriter], *, letters: bool) -> Writers:
    """The writer of each sink. Dead letters, where there may be some, go in the commit of the sink that has taken them so far,
    or of the first one with a topic; without such a sink they have the writer DEAD_WRITER."""
    named = suffixes(spec, known)
    topics = [name for name, sink in spec.sinks.items() if sink.topic]
    before = {one.suffix for one in known.values() if one.letters}
    carrier = next((name for name in topics if named[name] in before), topics[0] if topics else "")
    dead = str(TopicName.parse(spec.dead_letters)) if letters else ""
    found = {
        name: SinkWriter(
            suffix=named[name],
            target=_target(spec, sink),
            letters=dead if name == carrier else "",
            at_once=sink.foreign or sink.delivery not in ("", Delivery.EXACTLY_ONCE),
        )
        for name, sink in spec.sinks.items()
    }
    if letters and not carrier:
        found[DEAD_WRITER] = SinkWriter(suffix=f"-{DEAD_WRITER}", target=_TOPIC + dead, letters=dead)
    return found


def check_open_batch(spec: Spec, folder: Folder, known: Writers, now: Writers, *, change_sinks: bool) -> None:
    """Refuse a file whose sinks or dead letters differ from those of a batch that was begun and that some sink has.

    `change_sinks`: the user says that a sink that is gone need not get it. Raises PipelineError.
    """
    batch = interrupted(folder)
    if batch is None or not known:
        return
    changes = differences(known, now)
    if not changes:
        return
    having = {name for name, one in known.items() if _has(spec, folder.query(), one, batch)}
    if having:
        refuse(spec, batch, known, now, having, change_sinks=change_sinks)


def differences(known: Writers, now: Writers) -> list[str]:
    """A sentence for each writer that is new, gone, or writes something else. Pure."""
    found: list[str] = []
    left = {one.suffix: (name, one) for name, one in now.items()}
    for name, before in known.items():
        place, (_, after) = _place(name), left.pop(before.suffix, ("", None))
        if after is None:
            found.append(f"there is no {place}")
        elif after.target != before.target:
            found.append(f"{place} writes to {after.target}")
        elif after.letters != before.letters:
            found.append(f"{place} {'now takes' if after.letters else 'no longer takes'} the dead letters")
    return found + [f"{_place(name)} is new" for name, _ in left.values()]


def refuse(
    spec: Spec, batch: int, known: Writers, now: Writers, having: Collection[str], *, change_sinks: bool
) -> None:
    """Raise PipelineError, which says the way out, unless the user has chosen it. Pure."""
    after = {one.suffix: one for one in now.values()}
    moved = [
        name
        for name in having
        if (one := after.get(known[name].suffix)) and one.letters != known[name].letters
    ]
    if change_sinks and not moved:
        return
    lacking = [name for name in known if name not in having]
    has = ", ".join(f"{_place(name)} ({known[name].target})" for name in known if name in having)
    lacks = ", ".join(f"{_place(name)} ({known[name].target})" for name in lacking)
    state = f"batch {batch} is in {has}" + (f", and not in {lacks}" if lacks else "")
    way = (
        "put the sinks and dead_letters back as they were, mend what fails, and run until the batch is over (penstock pipeline"
        f" run {spec.file} --once); then change the file"
    )
    if not moved:
        way += (
            ". Where a sink can never get the batch, run once with --change-sinks: a sink that stays takes the batch for a"
            " repeat, and one that is gone lacks it"
        )
    raise PipelineError(
        f"{spec.file}: {state}, and the file has changed since it was begun: {'; '.join(differences(known, now))}. Nothing was"
        f" done: {way}"
    )


def _has(spec: Spec, query: str, writer: SinkWriter, batch: int) -> bool:
    """Whether a batch, or a later one, is in what a writer writes to; True where nobody knows."""
    if writer.at_once:
        return True
    name = f"{query}{writer.suffix}"
    if writer.target.startswith(_TABLE):
        from penstock.pipeline.lake.options import is_table, snapshot_of
        from penstock.pipeline.lake.store import Location

        path = writer.target.removeprefix(_TABLE)
        folder = Location.of(path if "://" in path else str(spec.folder / path), spec.storage)
        last = snapshot_of(folder).last(name) if is_table(folder) else None
        return last is not None and last.batch >= batch
    try:
        with Stages(spec.server) as client:
            targets = client.status(name)["targets"]
    except PenstockError as error:
        if error.kind is ErrorKind.UNAVAILABLE:
            raise
        return True  # a server without staged publishing, or one that does not tell us
    return any(found["batch"] >= batch for found in targets)


def _target(spec: Spec, sink: Sink) -> str:
    """What a sink writes to; a table below the file's folder by its relative path, as the two may be moved together."""
    if sink.path:
        below = "://" not in sink.path and Path(sink.path).is_relative_to(spec.folder)
        return _TABLE + (str(Path(sink.path).relative_to(spec.folder)) if below else sink.path)
    if sink.foreign:
        return sink.target
    return (
        _TOPIC + str(TopicName.parse(sink.topic)) if sink.topic else f"topics by column {sink.topic_column}"
    )


def _place(name: str) -> str:
    return "dead_letters" if name == DEAD_WRITER else f"[sinks.{name}]"


def _is_alone(spec: Spec) -> bool:
    """Whether the only sink of a new checkpoint writes under the query's id, as Spark's own queries do."""
    views: list[Source | Step] = [*spec.sources.values(), *spec.steps]
    return len(spec.sinks) == 1 and spec.output != "update" and not any(rejects(view) for view in views)
