"""What is asked of the version of PySpark that is there."""

import pytest

from penstock.pipeline import versions
from penstock.pipeline.errors import PipelineError


def test_a_stateful_step_is_refused_where_spark_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check_stateful()
    monkeypatch.setattr(versions, "VERSION", (4, 0))
    with pytest.raises(PipelineError, match=r"^a stateful step needs PySpark 4\.1 or later; this is "):
        versions.check_stateful()
