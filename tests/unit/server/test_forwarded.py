"""Which peers are trusted proxies, what those say of their clients, and the address of a process behind one."""

import contextlib
import re
from urllib.parse import urlsplit

import pytest

from penstock.broker.settings import ClusterSettings
from penstock.server.config import Config, FleetSettings, HttpSettings, PulsarSettings, advertised
from penstock.server.forwarded import HttpScheme, TrustedProxies, forwarded_scheme
from penstock.server.listeners import Listeners

PROXIES = TrustedProxies(("127.0.0.1", "10.1.0.0/16", "2001:db8::/32"))


@pytest.mark.parametrize(
    ("host", "trusted"),
    [
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("10.1.200.7", True),
        ("10.2.0.1", False),
        ("::ffff:10.1.0.1", True),
        ("::ffff:10.2.0.1", False),
        ("2001:db8::5", True),
        ("2001:db8::5%eth0", True),
        ("2001:db9::5", False),
        ("", False),
        ("a.socket", False),
    ],
)
def test_peers_are_known_by_address_and_network(host: str, trusted: bool) -> None:
    assert PROXIES.include(host) is trusted
    assert not TrustedProxies().include(host)


@pytest.mark.parametrize("network", ["*", "proxy.example", "10.1.2.3/8", "127.0.0.1:80", ""])
def test_what_is_no_network_is_refused(network: str) -> None:
    with pytest.raises(ValueError, match=r"network|host bits"):
        TrustedProxies((network,))


@pytest.mark.parametrize(
    ("values", "own", "scheme"),
    [
        ([], "http", "http"),
        ([], "https", "https"),
        ([b"https"], "http", "https"),
        ([b"HTTPS "], "http", "https"),
        ([b"http"], "https", "http"),
        ([b"wss"], "http", "https"),
        ([b"https, http"], "http", "https"),
        ([b"http, https"], "http", "http"),
        ([b"https", b"http"], "https", "http"),
        ([b"gopher"], "http", "http"),
        ([b""], "https", "https"),
    ],
)
def test_the_scheme_of_the_client_is_what_the_proxy_says(
    values: list[bytes], own: HttpScheme, scheme: str
) -> None:
    headers = [(b"host", b"a"), *((b"x-forwarded-proto", value) for value in values)]
    assert forwarded_scheme(headers, own) == scheme


def test_an_advertised_address_may_say_its_scheme() -> None:
    assert advertised("10.0.0.5:8001", "http") == ("http", "10.0.0.5", 8001)
    assert advertised("10.0.0.5:8001", "https") == ("https", "10.0.0.5", 8001)
    assert advertised("https://[::1]:8001", "http") == ("https", "::1", 8001)
    for text in ("pulsar://a:1", "https://a", "a", "off"):
        with pytest.raises(ValueError, match="host:port"):
            advertised(text, "http")


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("gw.example:8443", "http://gw.example:8443"),
        ("https://gw.example:8443", "https://gw.example:8443"),
        ("https://[2001:db8::5]:8443", "https://[2001:db8::5]:8443"),
    ],
)
def test_a_process_is_found_where_it_is_advertised(said: str, url: str) -> None:
    http = HttpSettings(listen="127.0.0.1:0", advertise=said)
    with contextlib.ExitStack() as sockets:
        config = Config(http=http, pulsar=PulsarSettings(listen="off"))
        assert Listeners(config, sockets).own_url == url


KAFKA = ClusterSettings(url="kafka://127.0.0.1:1")


@pytest.mark.parametrize(
    ("listen", "advertise", "host"),
    [
        ("127.0.0.1:0", "", "127.0.0.1"),
        ("0.0.0.0:0", "", "127.0.0.1"),
        ("0.0.0.0:0", "gw.example:8080", "gw.example"),
    ],
)
def test_processes_reach_one_another_where_clients_may_not(listen: str, advertise: str, host: str) -> None:
    http = HttpSettings(listen="127.0.0.1:0", advertise=advertise)
    with contextlib.ExitStack() as sockets:
        config = Config(
            http=http, pulsar=PulsarSettings(listen=listen, advertise="lb.example:1"), engine=KAFKA
        )
        listeners = Listeners(config, sockets)
        found = urlsplit(listeners.peer_url)
        assert (found.scheme, found.hostname) == ("pulsar", host)
        assert found.port == urlsplit(listeners.urls[1]).port


@pytest.mark.parametrize(
    ("pulsar", "advertise", "own", "url"),
    [
        ("off", "", "", r"pulsar://127\.0\.0\.1:[1-9]\d+"),
        ("off", "gw.example:8080", "", r"pulsar://gw\.example:[1-9]\d+"),
        ("127.0.0.1:0", "gw.example:8080", "", r"pulsar://gw\.example:[1-9]\d+"),  # at a loopback address
        ("127.0.0.1:0", "", "[::1]:0", r"pulsar://\[::1\]:[1-9]\d+"),
    ],
)
def test_processes_have_a_listener_if_they_cannot_use_that_of_clients(
    pulsar: str, advertise: str, own: str, url: str
) -> None:
    config = Config(
        http=HttpSettings(listen="127.0.0.1:0", advertise=advertise),
        pulsar=PulsarSettings(listen=pulsar),
        fleet=FleetSettings(listen=own),
        engine=KAFKA,
    )
    with contextlib.ExitStack() as sockets:
        listeners = Listeners(config, sockets)
        assert re.fullmatch(url, listeners.peer_url)
        assert urlsplit(listeners.peer_url).port not in {urlsplit(each).port for each in listeners.urls}
        assert listeners.own_pulsar.url == "" or pulsar != "off"


@pytest.mark.parametrize(
    ("listen", "http_advertise", "pulsar_advertise", "host"),
    [
        ("127.0.0.1:0", "", "", "127.0.0.1"),
        ("0.0.0.0:0", "", "", None),
        ("0.0.0.0:0", "gw.example:8080", "", "gw.example"),
        ("127.0.0.1:0", "gw.example:8080", "", None),  # nothing listens there
        ("127.0.0.1:0", "localhost:8080", "", "localhost"),
        ("0.0.0.0:0", "10.0.0.5:8080", "lb.example:6650", "lb.example"),  # clients reach no process alone
    ],
)
def test_clients_are_led_to_a_process_only_where_they_reach_it(
    listen: str, http_advertise: str, pulsar_advertise: str, host: str | None
) -> None:
    http = HttpSettings(listen="127.0.0.1:0", advertise=http_advertise)
    pulsar = PulsarSettings(listen=listen, advertise=pulsar_advertise)
    with contextlib.ExitStack() as sockets:
        found = Listeners(Config(http=http, pulsar=pulsar, engine=KAFKA), sockets).own_pulsar
        assert urlsplit(found.url).hostname == host


def test_no_process_connects_over_pulsars_protocol_but_before_kafka() -> None:
    with contextlib.ExitStack() as sockets:
        config = Config(http=HttpSettings(listen="127.0.0.1:0"), pulsar=PulsarSettings(listen="off"))
        assert Listeners(config, sockets).peer_url == ""
