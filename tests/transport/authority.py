"""Certificates made for a test: an authority, and servers that it vouches for (or does not)."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest

x509 = pytest.importorskip("cryptography.x509", reason="the tests of TLS make their certificates with `cryptography`")
from cryptography.hazmat.primitives import hashes, serialization  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec  # noqa: E402

_DAY = datetime.timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _certificate(
    name: str, issuer: str, key: ec.EllipticCurvePrivateKey, days: tuple[int, int]
) -> x509.CertificateBuilder:
    """A certificate for this key, valid from and until so many days from now."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + days[0] * _DAY)
        .not_valid_after(now + days[1] * _DAY)
    )


class Authority:
    """A certificate authority of one's own; `identified=False` leaves the key identifiers out, as old ones do."""

    def __init__(self, directory: Path, name: str = "dragoman test authority", *, identified: bool = True) -> None:
        self._directory = directory
        self._name = name
        self._identified = identified
        self._key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _certificate(name, name, self._key, (-1, 30))
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True)
        )
        if identified:
            own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
            builder = builder.add_extension(own, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        self.pem = certificate.public_bytes(serialization.Encoding.PEM)
        self.file = directory / f"{name.replace(' ', '-')}.pem"
        self.file.write_bytes(self.pem)

    def server(self, host: str = "127.0.0.1", *, expired: bool = False) -> ssl.SSLContext:
        """The context of a server for this host."""
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            name: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        builder = (
            _certificate(host, self._name, key, (-20, -10 if expired else 10))
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        if self._identified:
            issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
            builder = builder.add_extension(issuer, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        file = self._directory / f"{host}-{expired}.pem"
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        file.write_bytes(key.private_bytes(*form) + certificate.public_bytes(serialization.Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context
