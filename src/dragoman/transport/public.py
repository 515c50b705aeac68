"""Which addresses are on the public internet: not this machine, its network, or the metadata services of clouds."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address

# The registries of special addresses (RFC 6890 and later additions), written out, because Python's notion of private
# has changed between versions. 168.63.129.16 is a cloud's own service.
_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16"),
        *("172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15"),
        *("198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
    )
)
_PUBLIC_6: Final = IPv6Network("2000::/3")
_NOT_PUBLIC_6: Final = tuple(  # special addresses with Teredo, documentation, 6to4, documentation
    IPv6Network(network) for network in ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")
)
_MAPPED: Final = IPv6Network("::ffff:0:0/96")
_NAT64: Final = IPv6Network("64:ff9b::/96")
_ISATAP: Final = (0x00005EFE, 0x02005EFE)


def reached_address(address: Address) -> Address:
    """The IPv4 address that the connection would reach through a translator, where there is one."""
    if isinstance(address, IPv6Address) and (address in _MAPPED or address in _NAT64):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address


def is_public(given: Address) -> bool:
    """Whether an address is plainly one of the public internet."""
    address = reached_address(given)
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    tunnel = (int(address) >> 32) & 0xFFFFFFFF in _ISATAP
    return address in _PUBLIC_6 and not tunnel and not any(address in network for network in _NOT_PUBLIC_6)
