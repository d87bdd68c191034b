"""A control plane on loopback needs the certificates that kubeadm would make: two authorities, five
clients, one server.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFE = datetime.timedelta(days=365)
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Authority:
    """Signs; its certificate lies beside the keys that it made."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue(self, name: str, *, common_name: str, groups: Sequence[str] = (), hosts: Sequence[str] = ()) -> None:
        """Writes `<name>.crt` and `<name>.key` for a client (user and groups) or a server (hosts)."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
            + [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
        )
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = _builder(subject, self.certificate.subject, key).add_extension(usage, critical=False)
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False
            )
        _write(self.folder, name, key, builder.sign(self.key, hashes.SHA256()))


def authority(folder: Path, name: str) -> Authority:
    """A new self-signed authority, written to `<name>.crt` and `<name>.key`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = _builder(subject, subject, key).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    certificate = builder.sign(key, hashes.SHA256())
    _write(folder, name, key, certificate)
    return Authority(folder, name, key, certificate)


def load_authority(folder: Path, name: str) -> Authority:
    """An authority of an earlier process."""
    key = serialization.load_pem_private_key((folder / f"{name}.key").read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{name}.key is not an elliptic-curve key")
    return Authority(folder, name, key, x509.load_pem_x509_certificate((folder / f"{name}.crt").read_bytes()))


def token_key(folder: Path, name: str) -> None:
    """The key pair that signs and checks service-account tokens."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    _write_key(folder, name, key)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (folder / f"{name}.pub").write_bytes(public)


def control_plane(folder: Path) -> None:
    """Everything that the API server, its two neighbours and the administrator present or check."""
    folder.mkdir(parents=True, exist_ok=True)
    cluster, front = authority(folder, "ca"), authority(folder, "front-ca")
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    cluster.issue("apiserver", common_name="kube-apiserver", hosts=("127.0.0.1", "10.96.0.1", *names))
    cluster.issue("admin", common_name="admin", groups=("system:masters",))
    cluster.issue("controller-manager", common_name="system:kube-controller-manager")
    cluster.issue("scheduler", common_name="system:kube-scheduler")
    front.issue("front-proxy", common_name="front-proxy-client")
    token_key(folder, "service-account")


def _builder(subject: x509.Name, issuer: x509.Name, key: PrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + LIFE)
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(folder: Path, name: str, key: PrivateKey, certificate: x509.Certificate) -> None:
    _write_key(folder, name, key)
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(folder: Path, name: str, key: PrivateKey) -> None:
    path = folder / f"{name}.key"
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
