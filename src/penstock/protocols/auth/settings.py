"""Authentication and authorization: `auth` of the configuration."""

import msgspec

from penstock.model.secret import Secret


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication and permissions. Files are paths; an empty text is none."""

    enabled: bool = False  # a first try takes a minute; only loopback addresses are served without
    insecure: bool = False  # serve other addresses without it all the same
    token_secret_key: Secret = Secret()  # one key signs and verifies; better kept in a file
    token_secret_key_file: str = ""
    token_public_key_file: str = ""  # a verifier cannot sign
    token_jwks_file: str = ""  # an identity provider's keys, by their ids
    role_claim: str = "sub"  # as Pulsar's tokenAuthClaim
    audience: str = ""  # tokens must be for it; none: whomever they are for
    leeway_s: int = 10  # clocks differ
    basic_file: str = ""  # users and their hashed passwords
    certificates: bool = False  # the common name of a verified client certificate is a role
    anonymous_role: str = ""  # of clients without credentials; empty: they are refused
    super_users: tuple[str, ...] = ()  # roles that may do everything
    proxy_roles: tuple[
        str, ...
    ] = ()  # roles that act for an original principal, and only so (Pulsar's proxyRoles)
    permissions: dict[str, dict[str, tuple[str, ...]]] = {}  # by namespace or topic, then by role
    open_metrics: bool = False  # /metrics without credentials, for a Prometheus that has none


class AuthConfigError(Exception):
    """Settings that do not make sense, or a file that cannot be used; one sentence that names the key."""
