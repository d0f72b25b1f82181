"""``webhooks.json``: whole, private, kept when broken, never written over when newer; no secret is in it."""

import json
import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ralphd.core.delivery import Destination, Format
from ralphd.core.time import rfc3339
from ralphd.errors import NewerState
from ralphd.store.files import Broken
from ralphd.store.webhooks import MOST_GONE, Added, Gone, Webhooks, WebhooksFile

AT = 1_700_000_000.0
HOOK = Destination("https://one.example/T0ken", ("ralph.*",), Format.SLACK, True, None, "NAME", "phone")
MADE = Destination("https://two.example", secret_file="/somewhere/ID.secret")


def held() -> Webhooks:
    some = Webhooks().with_added(Added(HOOK, AT)).with_added(Added(MADE, AT, is_made=True))
    return some.with_gone("f00", Gone("answered 410 Gone", AT))


def test_what_was_saved_is_loaded_again(tmp_path: Path) -> None:
    file = WebhooksFile(tmp_path)
    assert file.load() == Webhooks()

    file.save(held())

    assert WebhooksFile(tmp_path).load() == held()
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_its_keys_are_those_that_the_page_tells(tmp_path: Path) -> None:
    WebhooksFile(tmp_path).save(held())
    written = json.loads((tmp_path / "webhooks.json").read_text())
    page = (Path(__file__).parents[2] / "docs" / "files.md").read_text()
    section = page.split("## `webhooks.json`\n")[1].split("\n## ")[0]
    whole, one = (
        re.findall(r"^\| `(\w+)` \|", part, re.M) for part in section.split("Each webhook in `webhooks`")
    )

    assert whole == list(written)
    assert one == list(written["webhooks"][0])


def test_a_file_without_names_is_read(tmp_path: Path) -> None:
    plain = {
        "on": ["ralph.*"],
        "format": "slack",
        "allow_private": True,
        "secret_file": None,
        "secret_env": "NAME",
    }
    entry = {"url": HOOK.url, **plain, "is_made": False, "added_at": rfc3339(AT)}
    (tmp_path / "webhooks.json").write_text(json.dumps({"version": 1, "webhooks": [entry], "gone": {}}))

    assert WebhooksFile(tmp_path).load() == Webhooks({HOOK.id: Added(replace(HOOK, name=""), AT)})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 1, "webhooks": [{"url": "file:///etc/passwd"}], "gone": {}}',
        '{"version": 1, "webhooks": [], "gone": []}',
        '{"version": 1, "webhooks": [7], "gone": {}}',
        '{"version": 2, "webhooks": [{"url": "https://x.example", "name": "../x"}], "gone": {}}',
        '{"version": 1, "webhooks": [], "gone": {"x": {"why": "", "at": "soon"}}}',
    ],
)
def test_a_broken_one_is_kept_beside_its_place(tmp_path: Path, text: str) -> None:
    file = WebhooksFile(tmp_path)
    file.path.write_text(text)

    with pytest.raises(Broken) as caught:
        file.load()

    assert caught.value.kept_as is not None
    assert caught.value.kept_as.name.startswith("webhooks.json.corrupt-")
    assert caught.value.kept_as.read_text() == text
    assert file.load() == Webhooks()


def test_one_of_a_newer_version_is_left_as_it_is(tmp_path: Path) -> None:
    file = WebhooksFile(tmp_path)
    file.path.write_text('{"version": 3}')

    with pytest.raises(NewerState):
        file.load()

    assert file.path.read_text() == '{"version": 3}'


def test_a_secret_is_a_private_file_of_its_own(tmp_path: Path) -> None:
    file = WebhooksFile(tmp_path)

    path = file.keep_secret("abc", "whsec_x")

    assert path == tmp_path / "webhooks" / "abc.secret" == file.secret_path("abc")
    assert path.read_text() == "whsec_x\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    file.forget_secret("abc")
    file.forget_secret("abc")
    assert not path.exists()


def test_adding_again_ends_that_it_was_gone_and_marks_are_bounded() -> None:
    some = held().with_gone(HOOK.id, Gone("answered 410 Gone", AT))

    assert HOOK.id not in some.with_added(Added(HOOK, AT)).gone
    assert some.without(HOOK.id) == Webhooks({MADE.id: Added(MADE, AT, is_made=True)}, held().gone)
    for n in range(MOST_GONE + 5):
        some = some.with_gone(str(n), Gone("gone", AT))
    assert len(some.gone) == MOST_GONE
    assert str(MOST_GONE + 4) in some.gone
