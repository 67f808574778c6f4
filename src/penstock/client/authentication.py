"""Authentication methods of clients."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from .errors import ErrorGettingAuthenticationData, InvalidConfiguration, PulsarException


class Authentication:
    """The identity of a client: the name of a method, and the data that it sends to the broker."""

    method = "none"
    original_principal = ""
    """The principal that the client acts for, if it is a proxy."""
    original: Authentication | None = None
    """The credentials of that principal, if the proxy forwards them."""

    def data(self) -> bytes:
        """The data to send now; asked again when it wants fresh data."""
        return b""

    def headers(self) -> dict[str, str]:
        """The same for a service URL of HTTP."""
        return {}

    def certificate(self) -> tuple[str, str] | None:
        """Files of a certificate and its private key, for TLS."""
        return None

    def refused(self, error: PulsarException) -> PulsarException:
        """What a connection ends with that the broker refuses because of these credentials."""
        return error


class ActingFor(Authentication):
    """A proxy that acts for another principal, under its own credentials.

    Args:
        proxy: How the proxy itself is authenticated.
        original_principal: The principal that it acts for.
        original: The credentials of that principal, to be forwarded; None keeps them back.
    """

    def __init__(
        self, proxy: Authentication, original_principal: str, original: Authentication | None = None
    ) -> None:
        if not original_principal:
            raise InvalidConfiguration("whom a proxy acts for needs a name: original_principal")
        self._proxy = proxy
        self.method = proxy.method
        self.original_principal = original_principal
        self.original = original

    def data(self) -> bytes:
        return self._proxy.data()

    def headers(self) -> dict[str, str]:
        return {**self._proxy.headers(), "X-Original-Principal": self.original_principal}

    def certificate(self) -> tuple[str, str] | None:
        return self._proxy.certificate()


class AuthenticationToken(Authentication):
    """A token, such as a JWT.

    Args:
        token: The token, or a function that gives it and is asked again when the broker wants a fresh one.
    """

    method = "token"

    def __init__(self, token: str | Callable[[], str]) -> None:
        if not isinstance(token, str) and not callable(token):
            raise ValueError("a token is a text, or a function that gives one")
        self._token = token

    def data(self) -> bytes:
        return self._text().encode()

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._text()}"}

    def _text(self) -> str:
        if isinstance(self._token, str):
            return self._token
        try:
            return self._token()
        except Exception as error:
            raise ErrorGettingAuthenticationData(
                f"the function that gives the token failed: {error}"
            ) from error


class AuthenticationTLS(Authentication):
    """A client's certificate.

    Args:
        certificate_path: The file of the certificate.
        private_key_path: The file of its private key.
    """

    method = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        self._files = (certificate_path, private_key_path)

    def certificate(self) -> tuple[str, str]:
        return self._files


class AuthenticationBasic(Authentication):
    """A user's name and password.

    Args:
        username: The name.
        password: The password.
        method: What the broker calls the method.
        auth_params_string: Not understood here; give the name and the password.
    """

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str | None = None,
    ) -> None:
        if auth_params_string is not None or not username or password is None:
            raise InvalidConfiguration("AuthenticationBasic needs username and password")
        self.method = method
        self._pair = f"{username}:{password}".encode()

    def data(self) -> bytes:
        return self._pair

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Basic {b64encode(self._pair).decode()}"}
