"""Which IP addresses a message may be sent to: the public ones, and private ones where that was allowed.

Whoever can name an address must not be able to make the daemon talk to what only this machine can reach.
"""

import ipaddress
from collections.abc import Iterable
from typing import TypeAlias

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")
_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")
_METADATA = frozenset(map(ipaddress.ip_address, ("169.254.169.254", "100.100.100.200", "fd00:ec2::254")))
"""Where clouds hand out a machine's credentials. Link-local addresses, which most of them are, count too."""


def why_not(addresses: Iterable[str], *, allow_private: bool) -> str | None:
    """Why a name that has these addresses is not connected to; None when it may be.

    One address that is not public makes the whole name untrustworthy. ``allow_private`` lets private and
    loopback addresses through, metadata services never.
    """
    every = list(addresses)
    if any(map(is_metadata, every)):
        return "its address is that of a metadata service or link-local; nothing is ever sent there"
    if not allow_private and not all(map(is_public, every)):
        return "its address is private; only the user's own configuration file can allow that"
    return None


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet, an IPv4 address inside an IPv6 one included."""
    outer = ipaddress.ip_address(address)
    if isinstance(outer, ipaddress.IPv6Address) and outer in _NAT64_LOCAL:
        return False
    ip = _innermost(outer)
    if isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local:
        return False
    # is_global alone lets multicast through.
    return ip.is_global and not (ip.is_multicast or ip.is_reserved or ip.is_unspecified or ip.is_link_local)


def is_metadata(address: str) -> bool:
    """Whether an address is link-local, or one at which a cloud's machines are told their secrets."""
    ip = _innermost(ipaddress.ip_address(address))
    return ip.is_link_local or ip in _METADATA


def _innermost(ip: _Address) -> _Address:
    """The IPv4 address that an IPv6 one leads to, where it does (mapped, NAT64, 6to4, Teredo)."""
    if isinstance(ip, ipaddress.IPv4Address):
        return ip
    if any(ip in net for net in (_NAT64, _NAT64_LOCAL, _TRANSLATED)) or (
        ip in _COMPATIBLE and int(ip) > 0xFFFF
    ):
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else ip)
