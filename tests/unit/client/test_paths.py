"""Paths of a server's resources."""

import pytest

from penstock.client.paths import quoted, subscription_admin_path
from penstock.model.errors import ErrorKind, PenstockError
from penstock.model.names import TopicName


def test_a_name_is_one_segment() -> None:
    assert quoted("a/b?c%2e") == "a%2Fb%3Fc%252e"
    assert quoted("...") == "..."
    for name in (".", ".."):  # HTTP clients take them out of a path, which is then another resource's
        with pytest.raises(PenstockError) as refused:
            subscription_admin_path(TopicName.parse("t"), name)
        assert refused.value.kind is ErrorKind.INVALID_NAME
