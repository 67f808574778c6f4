"""Certificates as files hold them: whose they are, and when they are valid."""

from datetime import datetime
from typing import NamedTuple

from cryptography.x509 import Certificate, load_pem_x509_certificates


class Validity(NamedTuple):
    """From when until when a certificate counts; `owner` is its subject (RFC 4514)."""

    owner: str
    begins: datetime
    ends: datetime


def validities(content: bytes) -> list[Validity]:
    """Of the certificates of a PEM file, in their order. Raises ValueError if they cannot be read."""
    try:
        return [_of(each) for each in load_pem_x509_certificates(content)]
    except (
        AttributeError
    ) as error:  # of a `cryptography` of before 42, which a user's own packages may ask for
        raise ValueError(str(error)) from None


def _of(certificate: Certificate) -> Validity:
    owner = certificate.subject.rfc4514_string() or f"serial number {certificate.serial_number:x}"
    return Validity(owner, certificate.not_valid_before_utc, certificate.not_valid_after_utc)
