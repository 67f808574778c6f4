"""Connections by address: what counts as one."""

import pytest

from penstock.protocols.load import Load, network_of


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("::ffff:10.0.0.7", "10.0.0.7"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
        ("a:b", "a:b"),
    ],
)
def test_networks(address: str, network: str) -> None:
    assert network_of(address) == network


def test_one_network_is_one_peer() -> None:
    load = Load(10, 2, 1)
    assert load.enter("2001:db8::1") == load.enter("2001:db8::2") == ""
    assert "2001:db8::/64 has limits.max_connections_per_address" in load.enter("2001:db8::3")
    assert load.enter("2001:db8:0:1::1") == ""
    load.leave("2001:db8::2")
    assert load.enter("2001:db8::3") == ""
    assert load.connections == 3
