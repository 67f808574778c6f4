"""Commands called in the test's process."""

import inspect

from click.testing import CliRunner


def runner() -> CliRunner:
    """One that keeps stdout and stderr apart: as click does since 8.2, and before where it is told to."""
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart)  # type: ignore[arg-type]
