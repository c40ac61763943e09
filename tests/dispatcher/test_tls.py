"""The dispatcher with a certificate: a client that does not trust it does not talk to it."""

from __future__ import annotations

import http.client
import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.dispatcher.support import TIMEOUT_SECONDS, dispatcher


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_tls_is_spoken_to_those_who_trust_the_certificate(certificate: tuple[Path, Path]) -> None:
    with dispatcher(certificate=certificate) as running:
        assert running.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(certificate[0]))
        host = running.url.removeprefix("https://")
        connection = http.client.HTTPSConnection(host, timeout=TIMEOUT_SECONDS, context=trusting)
        connection.request("GET", "/readyz")
        assert connection.getresponse().status == 200
        connection.close()
        stranger = http.client.HTTPSConnection(host, timeout=TIMEOUT_SECONDS)
        with pytest.raises(ssl.SSLCertVerificationError):
            stranger.request("GET", "/readyz")
        stranger.close()
