"""`penstock restore FILE`; see `backup`."""

from .backup import restore as command

__all__ = ["command"]
