"""What a run found: a table for people, one object for programs."""

from typing import Any, Final, NamedTuple

from penstock.cli import output

from .latencies import Latencies
from .pace import Pace

BUSY: Final = 0.9  # of a processor


class Setting(NamedTuple):
    """What was measured."""

    benchmark: str
    protocol: str
    topic: str
    size: int
    producers: int
    rate: float | None
    consumers: int = 0


def report(setting: Setting, pace: Pace) -> None:
    """Print the result of a run."""
    found = result(setting, pace)
    if not output.for_people():
        output.line(found)
        return
    _for_people(found)
    if pace.error and pace.count:  # else it is the command's error
        output.say(f"the first error: {pace.error}")
    if found["unsent"]:
        output.say(f"{found['unsent']:,} messages could not be sent in time: the rate is more than it takes")
    if found["generator_cpu"] >= BUSY:
        output.say("this program used a whole processor: the server may take more than it can send")


def result(setting: Setting, pace: Pace) -> dict[str, Any]:
    """The result of a run; times in ms."""
    count, seconds = pace.count, pace.seconds
    per_second = count / seconds if seconds > 0 else 0.0
    return {
        "benchmark": setting.benchmark,
        "protocol": setting.protocol,
        "topic": setting.topic,
        "producers": setting.producers,
        "consumers": setting.consumers,
        "size": setting.size,
        "rate": setting.rate,
        "messages": count,
        "errors": pace.errors,
        "error": pace.error or None,
        "unsent": pace.unsent,
        "seconds": round(seconds, 3),
        "messages_per_second": round(per_second, 1),
        "megabytes_per_second": round(per_second * setting.size / 1e6, 3),
        "latency_ms": _times(pace.latencies),
        "late_ms": _times(pace.lateness) if setting.rate else None,
        "generator_cpu": round(pace.cpu_share, 2),
    }


def _times(latencies: Latencies) -> dict[str, float] | None:
    summary = latencies.summary()
    if summary is None:
        return None
    percentiles = {f"p{percent:g}": round(time, 3) for percent, time in summary.percentiles.items()}
    return {"mean": round(summary.mean, 3), **percentiles, "max": round(summary.max, 3)}


def _for_people(found: dict[str, Any]) -> None:
    shown = {
        "topic": found["topic"],
        "messages": f"{found['messages']:,} of {found['size']:,} bytes in {found['seconds']:.1f} s",
        "rate": f"{found['messages_per_second']:,.0f} messages/s, {found['megabytes_per_second']:,.2f} MB/s",
    }
    if found["errors"]:
        shown["errors"] = f"{found['errors']:,}"
    output.record({**shown, "this program": f"{found['generator_cpu']:.0%} of a processor"})
    named = (("latency", found["latency_ms"]), ("sent late by", found["late_ms"]))
    rows = [
        {"ms": name, **{what: f"{time:,.2f}" for what, time in times.items()}}
        for name, times in named
        if times
    ]
    if rows:
        output.say("")
        output.rows(tuple(rows[0]), rows, "")
