"""One repository has one name on all hosts, and no URL is allowed that only looks like another."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphd.core.fleet.model import HostName
from ralphd.core.fleet.names import (
    account_key,
    branch_of,
    decoded_name,
    encoded_name,
    is_allowed,
    is_branch,
    is_host_name,
    is_item_id,
    lease_key,
    new_item_id,
    normalized_url,
    repo_id,
    want_key,
)

KEY_CHARS = set("abcdefghijklmnopqrstuvwxyz0123456789-_=/.")


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:team/app.git", "github.com/team/app"),
        ("github.com:team/app", "github.com/team/app"),
        ("ssh://git@GitHub.com/team/app.git/", "github.com/team/app"),
        ("ssh://git@github.com:22/team/app", "github.com/team/app"),
        ("ssh://git@host:2222/team/app", "host:2222/team/app"),
        ("https://me:secret@github.com/team/app.git", "github.com/team/app"),
        ("https://github.com:443//team//App", "github.com/team/App"),
        ("https://github.com/team/a%20b", "github.com/team/a b"),
        ("http://127.0.0.1:8080/app.git", "http://127.0.0.1:8080/app"),
        ("git://host/app", "git://host/app"),
        ("/srv/git/app.git/", "/srv/git/app"),
        ("file:///srv/git/app.git", "/srv/git/app"),
        ("host:~me/app", "host/~me/app"),
    ],
)
def test_a_url_is_normalized(url: str, name: str) -> None:
    assert normalized_url(url) == name


@pytest.mark.parametrize(
    "url",
    [
        *("", "app", "./app", "../app", "/", "host:", "https://host", "https://host/", "/srv/.git"),
        *("-oProxyCommand=x:y", "--upload-pack=x", "ext::sh -c x", "fd::7", "ftp://host/x", "file://host/x"),
        *(
            "https://evil.org?@github.com/x",
            "https://evil.org#@github.com/x",
            "https://evil.org\\@github.com/x",
        ),
        *("https://a@b@github.com/x", "https://-x/y", "https://host:99999999/x", "HTTPS://host/x"),
        *(
            "https://github.com/team/../other/x",
            "https://github.com/team/%2e%2e/x",
            "/srv/../etc",
            "host:../x",
        ),
        *(
            "https://github.com/x\n",
            "https://github.com/%0a",
            "https://github.com/x?y",
            "git@host:/" + "x" * 1000,
        ),
    ],
)
def test_what_is_no_remote_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"^not the|^not a"):
        normalized_url(url)
    assert not is_allowed(url, ["*"])


@given(st.text())
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        name = normalized_url(text)
    except ValueError:
        return
    assert "@" not in name.partition("/")[0]
    assert len(repo_id(text)) == 16


def test_all_urls_of_a_repository_share_an_id() -> None:
    urls = ("git@host:t/app.git", "https://host/t/app", "ssh://me@HOST:22/t/app/")

    assert len({repo_id(url) for url in urls}) == 1


@pytest.mark.parametrize(
    ("url", "glob", "is_ok"),
    [
        ("git@github.com:team/app.git", "github.com/team/*", True),
        ("https://github.com/team/app", "git@github.com:team/*", True),
        ("git@github.com:other/app.git", "github.com/team/*", False),
        ("git@github.com:team/app.git", "github.com", True),
        ("git@git.acme.org:x/y", "*.acme.org/*", True),
        ("git@evil.org:x.acme.org/y", "*.acme.org/*", False),
        ("git@evil.org:github.com/team/app", "*/team/app", False),
        ("http://github.com/team/app", "github.com/team/*", False),
        ("http://github.com/team/app", "http://github.com/team/*", True),
        ("/srv/git/app", "/srv/git/*", True),
        ("/srv/other/app", "/srv/git/*", False),
        ("git@github.com:team/app", "*", True),
        ("git@github.com:team/app", "", False),
    ],
)
def test_globs_allow_what_they_name(url: str, glob: str, is_ok: bool) -> None:
    assert is_allowed(url, [glob]) == is_ok
    assert not is_allowed(url, [])


@given(st.text(max_size=50))
def test_names_survive_their_keys(name: str) -> None:
    try:
        text = encoded_name(name)
    except UnicodeEncodeError:
        return
    assert set(text) <= KEY_CHARS - {"."}
    assert decoded_name(text) == name
    assert branch_of(lease_key("0123456789abcdef", name)) == name


@pytest.mark.parametrize("text", ["x", "ABCD", "a=======", "mfrgg=", "é", "af"])
def test_a_broken_key_is_a_fault(text: str) -> None:
    with pytest.raises(ValueError):  # binascii's and codecs' own words
        branch_of(f"0123456789abcdef.{text}")


def test_other_keys_are_safe_too() -> None:
    assert set(account_key("claude", "Team A ✓") + want_key(HostName("h7"), "app.x")) <= KEY_CHARS
    assert account_key("claude", "").endswith(".-")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *(("h7", True), ("a" * 63, True), ("a" * 64, False), ("", False), ("-h", False), ("H7", False)),
        *(("a.b", False), ("h7\n", False)),
    ],
)
def test_host_names_have_a_rule(name: str, is_one: bool) -> None:
    assert is_host_name(name) == is_one


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        *(("main", True), ("ralph/i-7f3k", True), ("a" * 200, True), ("ünï", True)),
        *(
            ("", False),
            ("-x", False),
            ("a b", False),
            ("a..b", False),
            ("a.lock", False),
            ("a.lock/b", False),
        ),
        *(("/a", False), ("a/", False), ("a//b", False), ("a/.b", False), (".a", False), ("a.", False)),
        *(("a@{b", False), ("@", False), ("HEAD", False), ("a~1", False), ("a:b", False), ("a\n", False)),
        *(("é" * 150, False), ("\ud800", False), ("a\u202eb", False)),
    ],
)
def test_branches_are_as_git_takes_them(name: str, is_one: bool) -> None:
    assert is_branch(name) == is_one


@given(st.binary(min_size=5, max_size=20))
def test_new_ids_are_ids(random_bytes: bytes) -> None:
    assert is_item_id(new_item_id(random_bytes))
