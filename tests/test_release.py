"""What `make release` builds: which files, the same bytes each time, and the list of packages."""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from ralphd import __version__
from tests import release
from tests.pages import ROOT

PINNED = "a-b==1.0 \\\n    --hash=sha256:0a \\\n    --hash=sha256:0b\nextra==2.1 \\\n    --hash=sha256:0c\n"
"""As in constraints-all.txt."""


def component(name: str, version: str) -> dict[str, object]:
    return {"bom-ref": f"{name}=={version}", "name": name, "version": version}


def environment(**versions: str) -> release.Bom:
    """Return what the tool lists of an environment: a package needs the next one, and ralphd needs all."""
    components = [component(name, version) for name, version in versions.items()]
    refs = [each["bom-ref"] for each in components]
    chain = [{"ref": ref, "dependsOn": refs[number + 1 :]} for number, ref in enumerate(refs)]
    root = {"bom-ref": "root", "name": "ralphd"}
    edges = [{"ref": "root", "dependsOn": refs}, *chain]
    return {"metadata": {"component": root}, "components": components, "dependencies": edges}


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, bytes]:
    """The archives; they were built twice, and differed in no byte."""
    if not (ROOT / ".git").exists():
        pytest.skip("the files of a release are those of a git repository")
    return release.build_twice(tmp_path_factory.mktemp("release"), epoch=1_700_000_000)


def test_two_builds_are_the_same_bytes_and_a_wheel_has_each_file(archives: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(io.BytesIO(archives[release.WHEEL])) as wheel:
        members = {each.filename: each for each in wheel.infolist() if ".dist-info/" not in each.filename}
        same = {name for name in members if wheel.read(name) == (ROOT / name).read_bytes()}
        assert f"{release.NAME}.dist-info/licenses/LICENSE" in wheel.namelist()

    shipped = {name for name in release.tracked() if name.startswith(("ralphd/", "ralphctl/"))}
    assert set(members) == same == shipped
    assert {
        "ralphctl/web/templates/home.html",
        "ralphctl/web/static/page.js",
        "ralphd/store/events.sql",
    } < shipped
    assert {each.date_time for each in members.values()} == {(2023, 11, 14, 22, 13, 20)}
    assert {each.external_attr >> 16 & 0o7777 for each in members.values()} <= {0o644, 0o755}


def test_an_sdist_has_each_file_of_the_repository(archives: Mapping[str, bytes]) -> None:
    with tarfile.open(fileobj=io.BytesIO(archives[release.SDIST])) as sdist:
        members = sdist.getmembers()

    names = {each.name.removeprefix(f"{release.NAME}/") for each in members}
    assert names == {*release.tracked(), "PKG-INFO"}
    assert {"README.md", "LICENSE", "Makefile", "constraints.txt", "systemd/ralphd.service"} < names
    assert {(each.mode, each.uid, each.gid, each.mtime) for each in members} <= {
        (mode, 0, 0, 1_700_000_000) for mode in (0o644, 0o755)
    }


def test_builds_that_differ_are_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(source: Path, target: str, destination: Path, **rest: object) -> bytes:
        destination.mkdir(exist_ok=True)
        with tarfile.open(destination / release.SDIST, "w:gz"):
            pass
        return str(destination).encode() if target == "wheel" else b""

    monkeypatch.setattr(release, "tracked", lambda: ["LICENSE"])
    monkeypatch.setattr(release, "build", build)
    with pytest.raises(release.NotReleased, match=r"two builds differ: .*whl"):
        release.build_twice(tmp_path, epoch=1)


def test_the_list_has_the_pinned_packages_with_hashes_and_scope() -> None:
    listed = release.bill(
        environment(pytest="9", A_b="1.0", extra="2.1"),
        all_pins=PINNED,
        required=PINNED[: PINNED.index("extra")],
    )

    scopes = {each["name"]: each["scope"] for each in listed["components"]}
    assert scopes == {"A_b": "required", "extra": "optional"}
    [reference] = listed["components"][0]["externalReferences"]
    assert [each["content"] for each in reference["hashes"]] == ["0a", "0b"]
    assert listed["dependencies"] == [
        {"ref": "root", "dependsOn": ["A_b==1.0", "extra==2.1"]},
        {"ref": "A_b==1.0", "dependsOn": ["extra==2.1"]},
        {"ref": "extra==2.1"},
    ]
    assert listed["metadata"]["component"]["version"] == __version__


@pytest.mark.parametrize("versions", [{"a-b": "1.0"}, {"a-b": "1.0", "extra": "2.0"}])
def test_a_package_that_is_not_as_pinned_is_refused(versions: dict[str, str]) -> None:
    with pytest.raises(release.NotReleased, match="extra"):
        release.bill(environment(**versions), all_pins=PINNED, required="")


def test_every_pin_of_the_project_is_read() -> None:
    for name in ("constraints.txt", "constraints-all.txt"):
        text = (ROOT / name).read_text()
        pins = release.pins(text)
        assert len(pins) == text.count("==")
        assert sum(len(hashes) for _, hashes in pins.values()) == text.count("--hash=sha256:")


def test_sha256sum_accepts_the_sums(tmp_path: Path) -> None:
    files = {"a.whl": b"wheel", "b.json": json.dumps({}).encode()}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / release.SUMS).write_text(release.sums(files))

    check = ("sha256sum", "--check", "--strict", "--quiet", release.SUMS)
    assert subprocess.run(check, cwd=tmp_path, check=False).returncode == 0
    (tmp_path / "a.whl").write_bytes(b"other")
    assert subprocess.run(check, cwd=tmp_path, check=False, capture_output=True).returncode == 1
    assert hashlib.sha256(b"wheel").hexdigest() in release.sums(files)


def test_a_changed_file_and_a_missing_section_are_no_release() -> None:
    dated = f"## [{__version__}] - 2026-11-26\n"
    assert release.faults(dated, []) == []
    assert release.faults(dated, ["README.md"]) == ["not committed: README.md"]
    assert __version__ in "".join(release.faults("## [Unreleased]\n", []))


def test_the_changelog_has_a_section_for_this_version() -> None:
    assert release.faults((ROOT / "CHANGELOG.md").read_text(), []) == []


def test_every_version_that_is_shown_is_this_one() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ralphd", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[-1] == __version__
    assert f"ralphd&#160;{__version__}&#160;" in (ROOT / "docs/pictures/top.svg").read_text()
