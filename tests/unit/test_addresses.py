"""Where a webhook may lead: a corpus of hostile URLs and addresses (reliability, security line 27)."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidTask
from holdfast.policy.addresses import checked_webhook_url, refused_address
from holdfast.policy.sinks import webhook_sink

PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1"),
    *("100.64.0.1", "100.127.255.255", "::1", "fc00::1", "fdff:ffff::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1"),
    *("64:ff9b::7f00:1", "64:ff9b::a00:1", "::ffff:192.168.1.1", "0:0:0:0:0:ffff:7f00:1"),
]
NEVER = [
    *("0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.0.1", "224.0.0.1", "239.255.255.250", "240.0.0.1"),
    *("255.255.255.255", "192.0.0.170", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.88.99.1"),
    *("100.100.100.200", "168.63.129.16", "fd00:ec2::254", "::", "::7f00:1", "fe80::1", "febf::1", "fec0::1"),
    *("ff02::1", "2001:db8::1", "2002:7f00:1::", "2001::1", "2001:0:7f00:1::", "100::1", "64:ff9b:1::1"),
    *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::ffff:0.0.0.0", "5f00::1", "3fff::1", "fe80::1%eth0"),
]
PUBLIC = ["93.184.216.34", "1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8"]


@pytest.mark.parametrize("address", PRIVATE)
def test_private_addresses_need_a_word(address: str) -> None:
    assert refused_address(address, private=False)
    assert refused_address(address, private=True) is None


@pytest.mark.parametrize("address", NEVER)
def test_what_is_no_peer_is_refused_whatever_was_said(address: str) -> None:
    assert refused_address(address, private=False)
    assert refused_address(address, private=True)


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_free(address: str) -> None:
    assert refused_address(address, private=False) is None


@given(st.ip_addresses())
def test_nothing_that_python_calls_private_is_free(address: object) -> None:
    found = ip_address(str(address))
    if found.is_private or found.is_multicast or found.is_reserved or found.is_loopback or found.is_link_local:
        mapped = getattr(found, "ipv4_mapped", None)
        translated = found.version == 6 and str(found).startswith("64:ff9b::")
        assert refused_address(str(found), private=False) or mapped is not None or translated


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "0x7f.1", "1.2.3.4.5", "::g"])
def test_what_is_no_address_is_refused(text: str) -> None:
    assert refused_address(text, private=True)


HOSTS_INSIDE = [
    *("127.0.0.1", "127.1", "127.0.1", "2130706433", "017700000001", "0177.0.0.1", "0x7f.0.0.1", "0x7f000001"),
    *("0x7f.1", "127.0.0.1.1", "0", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    *("[0:0:0:0:0:0:0:1]", "[fe80::1]", "[fc00::1]", "[64:ff9b::7f00:1]", "169.254.169.254", "2852039166"),
    *("0xa9fea9fe", "0251.0376.0251.0376", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "1.2.3.4.5"),
    *("127.0.0.1.", "169.254.169.254.", "2130706433.", "127.1..", "0x7f.1."),
    *("[fd00:ec2::254]", "[::127.0.0.1]", "[2002:7f00:1::]", "224.0.0.1", "255.255.255.255", "127.0.0.1.0x1"),
]


@pytest.mark.parametrize("host", HOSTS_INSIDE)
@pytest.mark.parametrize("form", ["http://{}/", "https://{}:8443/hook?x=1", "http://{}"])
def test_urls_that_name_an_address_inside_are_refused(host: str, form: str) -> None:
    with pytest.raises(InvalidTask):
        checked_webhook_url(form.format(host), private=False)


MISMADE = [
    *("", "hook", "//example.org/", "example.org", "ftp://example.org/", "file:///etc/passwd", "gopher://x/_"),
    *("javascript:alert(1)", "http://", "http:///path", "https://user@example.org/", "https://a:b@example.org/"),
    *("https://example.org@127.0.0.1/", "http://127.0.0.1\\@example.org/", "http://example.org\\.evil/", "http://a b/"),
    *("http://example.org/\r\nX-Evil: 1", "http://example.org/\x00", "http://exämple.org/", "http://ⓔxample.org/"),
    *("http://127。0。0。1/", "http://example.org:22/", "http://example.org:25/", "http://example.org:0/"),
    *("http://example.org:99999/", "http://example.org:-1/", "http://example.org:http/", "http://[::1/", "http://[/"),
    *("http://example.org/#fragment", "http://example.org/<>", 'http://example.org/"', "http://{}/", "http://`id`/"),
    *("sqs://queue", "nats://host/x", "subscriber:x", "HTTP+UNIX://%2Frun%2Fdocker.sock/", "dict://x:11211/"),
    "https://example.org/" + "a" * 3000,
]


@pytest.mark.parametrize("url", MISMADE)
@pytest.mark.parametrize("private", [False, True])
def test_urls_that_are_no_webhooks_are_refused(url: str, private: bool) -> None:
    with pytest.raises(InvalidTask):
        checked_webhook_url(url, private=private)


@pytest.mark.parametrize("url", [None, 7, b"https://example.org/", ["https://example.org/"]])
def test_a_url_is_text(url: object) -> None:
    with pytest.raises(InvalidTask):
        checked_webhook_url(url, private=False)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org",
        "https://example.org/hook?a=1&b=%20",
        "http://example.org:8080/hook",
        "https://93.184.216.34/",
        "https://[2606:4700::1111]:8443/",
        "https://xn--exmple-cua.org/",
        "HTTPS://EXAMPLE.ORG/",
    ],
)
def test_honest_urls_are_taken_as_they_are(url: str) -> None:
    assert checked_webhook_url(url, private=False) == url


def test_a_private_sink_may_be_on_loopback_but_never_at_the_metadata_service() -> None:
    assert checked_webhook_url("http://127.0.0.1:8000/", private=True)
    with pytest.raises(InvalidTask):
        checked_webhook_url("http://169.254.169.254/latest/meta-data/", private=True)


def test_the_name_of_a_webhook_has_no_query() -> None:
    assert webhook_sink("https://example.org/hook?token=canary").name == "https://example.org/hook"


@pytest.mark.parametrize("kinds", ["task.failed", [], ["x" * 600], [7], ["a\nb"], {"task.failed"}])
def test_kinds_are_a_list_of_names(kinds: object) -> None:
    with pytest.raises(InvalidTask):
        webhook_sink("https://example.org/", kinds=kinds)  # type: ignore[arg-type]
