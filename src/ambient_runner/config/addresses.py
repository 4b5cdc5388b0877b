"""Classes of network addresses: which ones a server may contact for its clients."""

from __future__ import annotations

import ipaddress

__all__ = ["is_contactable_address", "is_public_address"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public_address(address: Address) -> bool:
    """Return True for an address of the internet that is no cloud's metadata service, however it is written."""
    return is_contactable_address(address) and _is_global(address)


def is_contactable_address(address: Address) -> bool:
    """Return True for a public or private address; False for metadata services, link-local, multicast and unspecified addresses."""
    return not any(_is_never_contacted(candidate) for candidate in (address, *_embedded_addresses(address)))


def _is_never_contacted(address: Address) -> bool:
    return address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA_ADDRESSES


def _is_global(address: Address) -> bool:
    """Return True for an address that is assigned to the internet: of IPv6 only 2000::/3. Python counts the rest as global too."""
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global
    inner = _translated_address(address)
    if inner is not None:
        return inner.is_global
    return address.is_global and address in _GLOBAL_UNICAST and address not in _DOCUMENTATION


def _translated_address(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address that is contacted in place of this one, if any."""
    teredo = address.teredo
    nat64 = _last_32_bits(address) if address in _NAT64 else None
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else None) or nat64


def _embedded_addresses(address: Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that a network may contact in place of this one."""
    if isinstance(address, ipaddress.IPv4Address):
        return []
    found = [_translated_address(address)]
    if any(address in network for network in (_IPV4_COMPATIBLE, _IPV4_TRANSLATED, _LOCAL_NAT64)):
        found.append(_last_32_bits(address))
    if address in _LOCAL_NAT64:  # RFC 6052: 16 bits, 8 bits that are zero, 16 bits
        bits = int(address)
        found.append(ipaddress.IPv4Address((bits >> 64 & 0xFFFF) << 16 | bits >> 40 & 0xFFFF))
    return [inner for inner in found if inner is not None and not inner.is_unspecified]


def _last_32_bits(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)


_METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(address)
    for address in (
        *("100.100.100.200", "168.63.129.16", "192.0.0.192"),  # Alibaba Cloud, Azure, Oracle; others are link-local
        *("fd00:ec2::254", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),  # AWS, Google, Oracle, Scaleway
    )
)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_DOCUMENTATION = ipaddress.IPv6Network("3fff::/20")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_LOCAL_NAT64 = ipaddress.IPv6Network("64:ff9b:1::/48")
_IPV4_COMPATIBLE = ipaddress.IPv6Network("::/96")
_IPV4_TRANSLATED = ipaddress.IPv6Network("::ffff:0:0:0/96")
