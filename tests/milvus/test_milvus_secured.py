"""A server with TLS and users: who may talk to it, and that the key goes to nobody else."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from indexing.engines.milvus import MilvusEngine
from tenancy.errors import InvalidInput, Unavailable
from tests.support.milvus_server import MilvusServer, missing

pytestmark = [pytest.mark.milvus, pytest.mark.slow]

KEY = "root:Milvus"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return _signed_by_itself(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]) -> Iterator[MilvusServer]:
    if reason := missing():
        pytest.skip(reason)
    server = MilvusServer(tmp_path_factory.mktemp("milvus"), authenticated=True, tls=certificate)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(f"{KEY}\n")
    return path


def test_the_right_key_and_authority_work(
    secured: MilvusServer, certificate: tuple[Path, Path], key_file: Path
) -> None:
    engine = MilvusEngine.server("milvus", secured.url, api_key_file=key_file, ca_file=certificate[0])
    assert engine.collections() == []
    engine.close()


def test_a_wrong_key_is_refused_and_never_quoted(
    secured: MilvusServer, certificate: tuple[Path, Path], key_file: Path
) -> None:
    key_file.write_text("root:wrong-secret")
    for file in (key_file, None):
        engine = MilvusEngine.server("milvus", secured.url, api_key_file=file, ca_file=certificate[0])
        with pytest.raises(Unavailable, match="refuses the key") as caught:
            engine.collections()
        assert "wrong-secret" not in str(caught.value)
        engine.close()


def test_an_unknown_authority_or_no_encryption_is_no_connection(
    secured: MilvusServer, tmp_path: Path, key_file: Path
) -> None:
    other, _ = _signed_by_itself(tmp_path)
    for url, authority in (
        (secured.url, other),
        (secured.url, None),
        (secured.url.replace("https", "http"), None),
    ):
        engine = MilvusEngine.server("milvus", url, api_key_file=key_file, ca_file=authority, timeout=3.0)
        with pytest.raises(Unavailable):
            engine.collections()
        engine.close()


def test_another_machine_is_reached_encrypted_and_with_a_key_alone(key_file: Path) -> None:
    for url, options in (
        ("http://milvus.example.com:19530", {"api_key_file": key_file}),
        ("https://milvus.example.com:19530", {}),
        ("https://user:secret@milvus.example.com:19530", {"api_key_file": key_file}),
    ):
        with pytest.raises(InvalidInput) as caught:
            MilvusEngine.server("milvus", url, **options)
        assert "secret" not in str(caught.value)
    MilvusEngine.server("milvus", "http://milvus.example.com:19530", plaintext=True).close()


def _signed_by_itself(folder: Path) -> tuple[Path, Path]:
    """PEM files of a certificate for this machine's loopback addresses, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    files = folder / "server.pem", folder / "server.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    return files
