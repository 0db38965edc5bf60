"""Client certificates of one authority, with the names and uses a test asks for (PEM, P-256)."""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Use = Literal["client", "server"]
_USES = {"client": ExtendedKeyUsageOID.CLIENT_AUTH, "server": ExtendedKeyUsageOID.SERVER_AUTH}


@dataclass(frozen=True)
class Authority:
    """An authority whose files lie in `folder`: `ca.pem`, and `bridge.pem` with `bridge.key` for 127.0.0.1."""

    folder: Path

    @cached_property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.generate_private_key(ec.SECP256R1())

    @cached_property
    def pem(self) -> bytes:
        """Its own certificate."""
        name = _name("authority")
        made = _builder(name, name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def settings(self) -> dict[str, str]:
        """The section `tls` of a bridge that asks for certificates of this authority; writes the files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        certificate, key = self.issued("bridge", uses=("server",), dns=("localhost",), local=True)
        for name, content in (("ca.pem", self.pem), ("bridge.pem", certificate), ("bridge.key", key)):
            (self.folder / name).write_bytes(content)
        names = {"certificate_file": "bridge.pem", "key_file": "bridge.key", "client_ca_file": "ca.pem"}
        return {name: str(self.folder / file) for name, file in names.items()}

    def issued(
        self,
        common_name: str,
        *,
        uses: Sequence[Use] = ("client",),
        dns: Sequence[str] = (),
        uris: Sequence[str] = (),
        local: bool = False,
    ) -> tuple[bytes, bytes]:
        """(certificate, key). Without `uses` it has no extended key usage."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _builder(_name(common_name), _name("authority"), key.public_key())
        names: list[x509.GeneralName] = [*map(x509.DNSName, dns), *map(x509.UniformResourceIdentifier, uris)]
        if local:
            names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        if names:
            made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if uses:
            made = made.add_extension(x509.ExtendedKeyUsage([_USES[use] for use in uses]), critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM), private

    def credentials(
        self, common_name: str, *, uses: Sequence[Use] = ("client",), dns: Sequence[str] = (), uris: Sequence[str] = ()
    ) -> grpc.ChannelCredentials:
        """Of a client with such a certificate, which trusts this authority."""
        certificate, key = self.issued(common_name, uses=uses, dns=dns, uris=uris)
        return grpc.ssl_channel_credentials(self.pem, key, certificate)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(hours=1))
    return made.not_valid_after(now + dt.timedelta(days=1))


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
