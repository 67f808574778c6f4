"""Runs a declared pipeline: its plan, its folder, its query, its supervisor, and its events."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .handle import Pipeline, pipeline

__all__ = ["Pipeline", "pipeline"]


def __getattr__(name: str) -> Any:
    """`pipeline` and `Pipeline` bring Spark with them: they are imported when they are asked for."""
    if name in __all__:
        from . import handle

        return getattr(handle, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
