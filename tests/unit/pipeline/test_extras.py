"""A package that is not installed is one sentence, before anything is begun."""

import pytest

from penstock.pipeline.errors import PipelineError
from penstock.pipeline.run import preflight


@pytest.mark.parametrize(
    ("package", "tables", "sentence"),
    [
        ("pyspark", False, "pipelines need the package pyspark: pip install 'penstock[spark]'"),
        ("pyarrow", True, "pipelines need the package pyarrow: pip install 'penstock[spark,delta]'"),
        ("deltalake", True, "tables need the package deltalake: pip install 'penstock[spark,delta]'"),
    ],
)
def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, tables: bool, sentence: str
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == package else name)
    with pytest.raises(PipelineError) as refused:
        preflight.need_extras(tables=tables)
    assert refused.value.message == sentence


def test_delta_is_for_tables_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None if name == "deltalake" else name)
    preflight.need_extras()
