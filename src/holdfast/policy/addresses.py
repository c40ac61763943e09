"""Which addresses a webhook may reach (contract section 12; the reasons are in docs/guides/webhooks-and-wakeups.md).

A webhook's URL may come from a stranger, and a relay stands inside of the network: whatever is not plainly public is
refused, unless the sink was declared `private` on purpose; and even then nothing that is never a peer: the metadata
services of clouds, link-local, multicast and reserved addresses.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import SplitResult, urlsplit

from holdfast.errors import InvalidTask

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

URL_CHARS = 2000
PLAIN_PORTS, FIRST_FREE_PORT = (80, 443), 1024
"""Below the free ports are services that understand no HTTP, and do harm with it."""


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(ip_network(text) for text in texts)


NEVER = _networks(
    *("0.0.0.0/8", "169.254.0.0/16", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15"),
    *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "100.100.100.200/32", "168.63.129.16/32"),
    *("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "fd00:ec2::254/128"),
)
PRIVATE = _networks(
    *("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)
PUBLIC = _networks("0.0.0.0/0", "2000::/3")
TRANSLATED = IPv6Network("64:ff9b::/96")


def refused_address(text: str, *, private: bool) -> str | None:
    """Why nothing may be sent to this address; None: it may."""
    try:
        address = _meant(ip_address(text))
    except ValueError:
        return f"{text!r} is no address"
    inside = _within(address, PRIVATE)
    if _within(address, NEVER) or not (inside or _within(address, PUBLIC)):
        return f"{address}, which is no address of a peer"
    return f"{address}, which is a private address" if inside and not private else None


def _meant(address: Address) -> Address:
    """The IPv4 address that an IPv6 one stands for, where it does."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def _within(address: Address, networks: tuple[Network, ...]) -> bool:
    return any(address.version == network.version and address in network for network in networks)


def checked_webhook_url(url: object, *, private: bool) -> str:
    """A URL that may be declared. Where its name leads is looked at whenever something is sent."""
    if type(url) is not str or not url or len(url) > URL_CHARS:
        raise InvalidTask(f"a webhook needs a URL of at most {URL_CHARS} characters, such as https://example.org/hook")
    if not url.isascii() or not url.isprintable() or set(url) & set(' \\"<>^`{|}'):
        raise InvalidTask("a webhook's URL is printable ASCII without spaces; write other characters percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidTask(f"a webhook's URL cannot be read: {error}") from None
    _check_parts(parts, port)
    why = _refused_host(parts.hostname or "", private=private)
    if why is not None:
        raise InvalidTask(f"a webhook must not lead there: {why}; private=True allows a private network")
    return url


def _check_parts(parts: SplitResult, port: int | None) -> None:
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidTask("a webhook's URL begins with https:// or http:// and names a host")
    if "@" in parts.netloc:
        raise InvalidTask("a webhook's URL must not hold a user or password; requests are signed with `secret` instead")
    if parts.fragment:
        raise InvalidTask("a webhook's URL must not have a fragment (#…); it would never be sent")
    if port is not None and port not in PLAIN_PORTS and port < FIRST_FREE_PORT:
        raise InvalidTask(f"a webhook must not use port {port}; use 80, 443 or one from {FIRST_FREE_PORT} up")


def _refused_host(host: str, *, private: bool) -> str | None:
    try:
        ip_address(host)
    except ValueError:
        # With a dot at its end an address is a name to us, and to those who connect an address all the same.
        if host.rstrip(".").rpartition(".")[2][:1].isdigit():
            return f"{host!r} is an address in a form that programs read differently"
        return None
    return refused_address(host, private=private)
