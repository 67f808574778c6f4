"""The user's own Python: functions and processors named `module:name`."""

import importlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

from penstock.pipeline.errors import PipelineError


def load_callable(folder: Path, text: str, where: str) -> Any:
    """What `module:name` names; modules are looked for in the file's folder first.

    A module of that folder travels to Spark's workers whole, as they need not have the folder. Raises
    PipelineError, which names the place.
    """
    module_name, _, name = text.partition(":")
    with _first(folder):
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            raise PipelineError(f"{where}: module {module_name} cannot be imported: {error}") from None
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            raise PipelineError(
                f"{where}: module {module_name} fails when it is imported: {type(error).__name__}: {error}"
                f" ({place.filename}, line {place.lineno})"
            ) from None
    found = getattr(module, name, None)
    if not callable(found):
        raise PipelineError(f"{where}: module {module_name} has no function or class {name}")
    file = getattr(module, "__file__", None)
    if file is not None and Path(file).is_relative_to(folder):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
    return found


@contextmanager
def _first(folder: Path) -> Iterator[None]:
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
