"""Topics as Spark tables. The one package that imports PySpark and Arrow.

Its public functions are those of `run.frames`, which are imported on first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .run.frames import Expectation, dead_letters, decode_column, expect, passed, write_batch

__all__ = ["Expectation", "dead_letters", "decode_column", "expect", "passed", "write_batch"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from .run import frames

        return getattr(frames, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
