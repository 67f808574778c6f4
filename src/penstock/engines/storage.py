"""The embedded engine's data folder, as the command line works on it: look through, copy, put back."""

from penstock.engines.sqlite.backup import copy, restore
from penstock.engines.sqlite.check import Condition, Report, check, look
from penstock.engines.sqlite.store import FILE_NAME

__all__ = ["FILE_NAME", "Condition", "Report", "check", "copy", "look", "restore"]
