"""The official Java clients reach the server."""

from tests.clients.users import User


def test_a_message_of_the_java_client(java: User) -> None:
    assert java.run("Connecting.message") == "hello"


def test_the_java_admin_client(java: User) -> None:
    assert "public" in java.run("Connecting.admin")["tenants"]
