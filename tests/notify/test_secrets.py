"""The secret of a webhook from a command, and from a credential of systemd."""

from pathlib import Path

import pytest

from ralphd.core.delivery import BadSecret, Destination, ProjectsDestination
from ralphd.notify.client import key_of


def printed_by(script: str) -> bytes | None:
    return key_of(Destination(url="http://x/", secret_cmd=("/bin/sh", "-c", script)), {})


def test_a_command_prints_the_secret() -> None:
    assert printed_by("echo hush") == b"hush"
    assert printed_by("printf whsec_aHVzaA==; sleep 30 >/dev/null &") == b"hush"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo hush; exit 3", "exits with 3"),
        ("true", "empty"),
        ("yes", "prints more than 4096 bytes|exits with|did not end"),
        ("sleep 30", "within 2 s"),
        ("exec >&-; sleep 30", "within 2 s"),
    ],
)
def test_a_command_that_does_not_is_an_error_without_its_output(script: str, why: str) -> None:
    with pytest.raises(BadSecret, match=why) as fault:
        printed_by(script)
    assert "hush" not in str(fault.value)


def test_a_command_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(BadSecret, match="/no/such"):
        key_of(Destination(url="http://x/", secret_cmd=("/no/such",)), {})


def test_a_project_signs_with_a_secret_alone_whatever_was_checked_before(tmp_path: Path) -> None:
    file = tmp_path / "key"  # an agent can put it there, or a link, after its ralph was started
    file.write_text("hunter2\n")
    environ = {"TOKEN": "hunter2", "CREDENTIALS_DIRECTORY": str(tmp_path)}
    for path, variable in ((None, "TOKEN"), (str(file), None), ("credential:key", None)):
        mine = Destination("http://x/", secret_file=path, secret_env=variable)
        assert key_of(mine, environ) == b"hunter2"
        with pytest.raises(BadSecret, match="of the form whsec_"):
            key_of(ProjectsDestination(mine.url, secret_file=path, secret_env=variable), environ)
    assert key_of(ProjectsDestination("http://x/", secret_env="HOOK"), {"HOOK": "whsec_aHVzaA=="}) == b"hush"


def test_a_credential_of_systemd_is_read(tmp_path: Path) -> None:
    (tmp_path / "hook").write_text("hush\n")
    environ = {"CREDENTIALS_DIRECTORY": str(tmp_path)}
    assert key_of(Destination(url="http://x/", secret_file="credential:hook"), environ) == b"hush"
    for named, seen, why in (
        ("credential:hook", {}, "LoadCredential"),
        ("credential:../hook", environ, "not the name"),
        ("credential:", environ, "not the name"),
    ):
        with pytest.raises(BadSecret, match=why):
            key_of(Destination(url="http://x/", secret_file=named), seen)
