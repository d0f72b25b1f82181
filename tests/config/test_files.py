"""Which files are read, and which are not to be believed."""

import os
import stat
from pathlib import Path

import pytest

from ralphd.config.configuration import data_home
from ralphd.config.files import MAX_FILE_BYTES, distrust, project_file, user_file
from tests.config.conftest import Place


def test_the_users_file_is_where_xdg_says(tmp_path: Path) -> None:
    home = Path("/home/somebody")
    assert user_file({"XDG_CONFIG_HOME": "/etc/x"}, home) == Path("/etc/x/ralph/config.toml")
    assert user_file({"XDG_CONFIG_HOME": "relative"}, home) == home / ".config/ralph/config.toml"
    assert user_file({}, home) == home / ".config/ralph/config.toml"


def test_the_project_file_is_looked_for_upward_to_the_git_root_and_no_further(place: Place) -> None:
    deep = place.directory / "a" / "b"
    deep.mkdir(parents=True)
    (place.home / "ralph.toml").touch()
    above = place.directory / "ralph.toml"
    above.touch()

    assert project_file(deep, place.home) is None  # no repository: only the directory itself
    (place.directory / "a" / ".git").mkdir()
    assert project_file(deep, place.home) is None
    (place.directory / ".git").mkdir()
    (place.directory / "a" / ".git").rmdir()
    assert project_file(deep, place.home) == above
    (deep / "ralph.toml").touch()
    assert project_file(deep, place.home) == deep / "ralph.toml"


def test_the_search_never_goes_above_home(place: Place) -> None:
    (place.home.parent / ".git").mkdir()
    (place.home.parent / "ralph.toml").touch()
    assert project_file(place.directory, place.home) is None
    (place.home / "ralph.toml").touch()
    assert project_file(place.directory, place.home) == place.home / "ralph.toml"


def test_a_file_found_above_is_named_in_full(place: Place) -> None:
    (place.directory / ".git").mkdir()
    below = place.directory / "below"
    below.mkdir()
    path = place.project("[regent]\nmax_retries = 5\n")
    configuration = Place(place.home, below).load()
    assert configuration.regent.max_retries == 5
    assert configuration.origins["regent.max_retries"].text == f"{path.resolve()}:2"


def test_a_file_that_others_can_write_is_a_fault_and_not_used(place: Place) -> None:
    path = place.project("[regent]\nmax_retires = 5\n")
    path.chmod(0o646)
    assert place.faults() == [
        f"ralph.toml: can be written by other users: `chmod go-w {path.resolve()}`; it is not used"
    ]


def test_a_file_that_is_no_file_is_a_fault_and_blocks_nobody(place: Place) -> None:
    path = place.directory / "ralph.toml"
    os.mkfifo(path, 0o600)
    assert place.faults() == ["ralph.toml: is not a regular file; it is not used"]
    path.unlink()
    path.mkdir()
    assert place.faults() == ["ralph.toml: is not a regular file; it is not used"]


def test_a_file_that_is_too_large_or_not_utf8_is_a_fault(place: Place) -> None:
    path = place.project("#" * (MAX_FILE_BYTES + 1))
    assert place.faults() == [f"ralph.toml: is larger than {MAX_FILE_BYTES} bytes; it is not used"]
    path.write_bytes(b"# one\n# \xff\n")
    assert place.faults() == ["ralph.toml:2: is not UTF-8 text"]


def test_a_byte_order_mark_is_read_over(place: Place) -> None:
    place.project("\ufeff# Notepad\r\n[regent]\r\nmax_retries = 5\r\n")
    configuration = place.load()
    assert configuration.regent.max_retries == 5
    assert configuration.origins["regent.max_retries"].text == "ralph.toml:3"


def test_a_link_to_nothing_is_no_file(place: Place) -> None:
    (place.directory / "ralph.toml").symlink_to("nowhere")
    assert place.load().regent.max_retries == 3


@pytest.mark.parametrize(
    ("mode", "uid", "gid", "told"),
    [
        (0o600, 1000, 1000, None),
        (0o644, 0, 0, None),
        (0o664, 1000, 1000, None),
        (0o664, 1000, 50, "can be written by other users"),
        (0o666, 1000, 1000, "can be written by other users"),
        (0o600, 1001, 1000, "belongs to another user (uid 1001)"),
    ],
)
def test_only_what_we_or_root_alone_can_write_is_believed(
    mode: int, uid: int, gid: int, told: str | None
) -> None:
    status = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, uid, gid, 10, 0, 0, 0))
    why = distrust(status, Path("ralph.toml"), uid=1000, private_group=1000)
    assert (why or "").startswith(told or "") and (why is None) == (told is None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_a_fault_and_not_used(place: Place) -> None:
    path = place.project("[regent]\nmax_retires = 5\n")
    os.chown(path, 12345, 12345)
    assert place.faults() == [
        "ralph.toml: belongs to another user (uid 12345): "
        f"make it yours with `chown 0 {path.resolve()}`; it is not used"
    ]


def test_a_directory_that_others_can_write_is_a_fault(place: Place) -> None:
    place.project("[regent]\nmax_retries = 5\n")
    place.directory.chmod(0o777)
    assert place.faults() == [
        "ralph.toml: is in a directory that other users can write: "
        f"`chmod o-w {place.directory.resolve()}`; it is not used"
    ]
    place.directory.chmod(0o1777)
    assert place.load().regent.max_retries == 5


def test_ralphds_own_work_trees_have_one_path_behind_links(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "share").mkdir()
    (tmp_path / "share/ralphd").symlink_to(tmp_path / "big")
    assert data_home({"XDG_DATA_HOME": str(tmp_path / "share")}) == (tmp_path / "big").resolve()
