"""What a command says may help, where something is missing or away."""

import pytest

from penstock.cli.main import _hint
from penstock.client.http import RemoteError
from penstock.model.errors import ErrorKind, PenstockError


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (
            RemoteError(404, 40401, "topic t does not exist"),
            "penstock topics list shows those of a namespace",
        ),
        (RemoteError(404, 0, "Tenant doesn't exist"), ""),  # of a cluster: what is missing is not known
        (
            RemoteError(401, 0, "who are you?"),
            "a token is named by --token-file, PENSTOCK_TOKEN or a context",
        ),
        (RemoteError(503, 50301, "the cluster at http://c cannot be reached"), ""),
        (
            PenstockError(ErrorKind.UNAVAILABLE, "http://s cannot be reached: refused"),
            "another server is named by --url, PENSTOCK_URL or a context",
        ),
        (PenstockError(ErrorKind.TOPIC_NOT_FOUND, "not a server's word"), ""),
    ],
)
def test_a_hint_is_of_what_is_known(error: PenstockError, hint: str) -> None:
    assert _hint(error) == hint
