"""Under which names the page answers, how fast it may be asked, and where it may listen."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphctl.web.guard import MOST_KEYS, Rates, Site, TooMany, cookie_name
from ralphctl.web.listening import site_of
from ralphd.config.values import a_listener, host_names, page_address
from ralphd.errors import UsageError

LOOPBACK = Site("127.0.0.1:8765", ("box.example.ts.net", "other.example:8443"), "127.0.0.1")
OWN_TLS = Site("eth0:8443", ("page.example",), "192.0.2.7")
UNIX = Site("unix", ())


@pytest.mark.parametrize(
    ("site", "host", "origin"),
    [
        (LOOPBACK, "ralphd.localhost:8765", "http://ralphd.localhost:8765"),
        (LOOPBACK, "RALPHD.localhost:8765", "http://ralphd.localhost:8765"),
        (LOOPBACK, "box.example.ts.net", "https://box.example.ts.net"),
        (LOOPBACK, "other.example:8443", "https://other.example:8443"),
        (LOOPBACK, "other.example", None),
        (LOOPBACK, "box.example.ts.net:8765", None),
        (LOOPBACK, "127.0.0.1:8765", None),
        (LOOPBACK, "localhost:8765", None),
        (LOOPBACK, "ralphd.localhost", None),
        (OWN_TLS, "192.0.2.7:8443", "https://192.0.2.7:8443"),
        (OWN_TLS, "page.example:8443", "https://page.example:8443"),
        (OWN_TLS, "page.example", None),
        (OWN_TLS, "ralphd.localhost:8443", None),
        (Site("eth0:443", (), "192.0.2.7"), "192.0.2.7", "https://192.0.2.7"),
        (Site("[2001:db8::1]:8443", (), "2001:db8::1"), "[2001:db8::1]:8443", "https://[2001:db8::1]:8443"),
        (UNIX, "localhost:9000", "http://localhost:9000"),
        (UNIX, "ralphd.localhost:9000", "http://ralphd.localhost:9000"),
        (UNIX, "localhost", "http://localhost"),
        (UNIX, "localhost:9000x", None),
        (UNIX, "localhost.evil.example:9000", None),
        (UNIX, "127.0.0.1:9000", None),
    ],
)  # fmt: skip
def test_a_name_leads_to_an_origin(site: Site, host: str, origin: str | None) -> None:
    assert site.origin(host) == origin


@given(st.text())
def test_no_other_name_leads_anywhere(host: str) -> None:
    for site in (LOOPBACK, OWN_TLS):
        assert site.origin(host) is None
        assert site.origin(f"{host}.evil.example") is None


@pytest.mark.parametrize(
    ("site", "url"),
    [(LOOPBACK, "https://box.example.ts.net"), (OWN_TLS, "https://page.example:8443"), (UNIX, ""),
     (Site("127.0.0.1:80", (), "127.0.0.1"), "http://ralphd.localhost:80")],
)  # fmt: skip
def test_the_address_in_the_code_is_one_that_is_answered(site: Site, url: str) -> None:
    assert site.url == url
    assert not url or site.origin(url.partition("//")[2]) == url


def test_a_host_cookie_needs_https() -> None:
    assert cookie_name("https://x") == "__Host-ralphd" and cookie_name("http://x:1") == "ralphd"


@pytest.mark.parametrize(
    "listen", ["", "unix", "127.0.0.1:1", "tailscale0:8765", "[fd7a::1]:65535", "10.0.0.1:443"]
)
def test_one_network_can_be_listened_on(listen: str) -> None:
    assert a_listener(listen) == listen


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "[::]:80", "0:80", "[::0]:80", "0.0:80"])
def test_every_network_at_once_is_refused(listen: str) -> None:
    with pytest.raises(ValueError, match="every network"):
        a_listener(listen)


@pytest.mark.parametrize(
    "listen", ["8765", ":8765", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:70000", "a b:1", "x:1\n"]
)
def test_what_is_no_listener_is_refused(listen: str) -> None:
    with pytest.raises(ValueError, match="has to be"):
        a_listener(listen)


@pytest.mark.parametrize("listen", ["nothing0:80", "0x0:80", "[::ffff:0.0.0.0]:80", "localhost:80"])
def test_a_listener_has_an_address(listen: str) -> None:
    with pytest.raises(UsageError):
        site_of(listen, ())


def test_an_interface_has_its_address() -> None:
    assert site_of("lo:8765", ()) == Site("lo:8765", (), "127.0.0.1")
    assert not site_of("lo:8765", ()).is_tls and site_of("unix", ()).address == ""


@pytest.mark.parametrize("hosts", [("https://x",), ("X.example",), ("a b",), ("",), ("x/",), ("x:port",)])
def test_a_host_is_a_name(hosts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError):
        host_names(hosts)


def test_links_lead_to_the_first_host() -> None:
    assert page_address("127.0.0.1:1", ("a", "b")) == page_address("unix", ("a",)) == "https://a"
    assert page_address("eth0:8443", ("a",)) == "https://a:8443"
    assert page_address("eth0:8443", ("a:443",)) == "https://a" and page_address("unix", ()) == ""


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 3)), max_size=60))
def test_a_key_gets_its_burst_and_its_rate(asked: list[tuple[str, float]]) -> None:
    now, served = 0.0, {"a": 0, "b": 0}
    rates = Rates(2, 5, clock=lambda: now)
    for key, rest_s in asked:
        now += rest_s
        try:
            rates.take(key)
        except TooMany:
            continue
        served[key] += 1
        assert served[key] <= 5 + 2 * now + 1e-6


def test_keys_are_forgotten_not_collected() -> None:
    rates = Rates(1, 1)
    for number in range(3000):
        rates.take(str(number))
    assert len(rates._left) == MOST_KEYS
