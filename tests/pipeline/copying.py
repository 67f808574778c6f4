"""Three pipelines over one topic, for tests that break something while they run.

`topic` and `table` have one sink, which Spark itself commits to; `both` has two and dead letters, batch by batch.
Every message must be in `out-topic`, in the table `table`, and either in both of `both`'s or in its dead letters.
"""

from pathlib import Path

from . import census
from .census import BAD

_TOP = """
name = "{name}"
trigger = "100 milliseconds"
{more}
[spark]
"spark.sql.shuffle.partitions" = {shuffles}
"spark.ui.enabled" = false
{spark}
[sources.s]
topics = ["in"]
include = ["properties"]
max_rows_per_batch = {rows}
{source}
[[steps]]
name = "marked"
sql = '''
SELECT key, value, partition, offset, topic, properties['n'] AS n,
       map('from', concat(partition, ':', offset), 'n', properties['n']) AS properties
FROM s
'''
"""
_PYTHON = """
[[steps]]
name = "passed"
inputs = ["marked"]
python = "{python}"
"""
_TOPIC = """
[sinks.out]
input = "{input}"
topic = "{topic}"
value = "value"
key = "key"
properties = "properties"
"""
_KEPT = """
[[steps]]
name = "kept"
sql = "SELECT key, value, partition, offset, n FROM {input}"
[sinks.table]
input = "kept"
path = "{path}"
"""
_EXPECT = f"""expect = [{{ name = "good", predicate = "CAST(key AS STRING) <> '{BAD}'", action = "dead_letter" }}]
"""
NAMES = ("topic", "table", "both")


def write(
    folder: Path, *, rows: int, spark: str = "", source: str = "", python: str = "", shuffles: int = 1
) -> list[Path]:
    """Write the three files; `spark` and `source` are further lines of those tables.

    `shuffles` is how many tasks have what `both` reads more than once: its marked rows, before they pass `python`.
    `python` is a function for all rows to pass, with {name} for the pipeline's name.
    """

    def top(name: str, more: str = "", expect: str = "") -> str:
        settings = {"spark": spark, "source": source, "shuffles": shuffles}
        text = _TOP.format(name=name, more=more, rows=rows, **settings) + expect
        return text + (_PYTHON.format(python=python.format(name=name)) if python else "")

    view = "passed" if python else "marked"
    texts = {
        "topic": top("topic") + _TOPIC.format(topic="out-topic", input=view),
        "table": top("table") + _KEPT.format(path="table", input=view),
        "both": top("both", 'dead_letters = "dead"', _EXPECT)
        + _TOPIC.format(topic="out-both", input=view)
        + _KEPT.format(path="both-table", input=view),
    }
    for name, text in texts.items():
        (folder / f"{name}.toml").write_text(text)
    return [folder / f"{name}.toml" for name in NAMES]


def check(url: str, folder: Path) -> int:
    """Every message of `in` is where it belongs, once and byte by byte; returns how many rows were compared."""
    everything = census.messages(url, "in")
    good = {place: message for place, message in everything.items() if message.key != BAD}
    bad = {place: message for place, message in everything.items() if message.key == BAD}
    return sum(
        (
            census.same(everything, census.copies(url, "out-topic", census.marked)),
            census.same(everything, census.rows(folder / "table")),
            census.same(good, census.copies(url, "out-both", census.marked)),
            census.same(good, census.rows(folder / "both-table")),
            census.same(bad, census.copies(url, "dead", census.buried)),
        )
    )
