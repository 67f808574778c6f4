"""The packages that come with extras, and are looked for before anything is begun."""

from importlib.util import find_spec
from typing import Final

from penstock.model.errors import ErrorKind

from .errors import PipelineError

_EXTRAS: Final = {"pyspark": "spark", "pyarrow": "spark", "pandas": "spark", "deltalake": "delta"}


def need_extras(*, tables: bool = False) -> None:
    """Raises PipelineError where Spark's packages are not installed or, with `tables`, Delta's. Imports none of them."""
    for package, extra in _EXTRAS.items():
        if (tables or extra == "spark") and find_spec(package) is None:
            wanted = "spark,delta" if tables else extra
            raise PipelineError(
                f"{'tables' if extra == 'delta' else 'pipelines'} need the package {package}: pip install"
                f" 'penstock[{wanted}]'",
                ErrorKind.NOT_SUPPORTED,
            )
