"""Build the files of a release into ``dist/``: sdist, wheel, list of packages, checksums (`make release`).

The archives are built twice, in two directories, from files of other ages and modes, and the second wheel
comes from the second sdist. They have to be the same bytes: then everybody can build and compare them.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ralphd import __version__
from tests.pages import ROOT

NAME = f"ralphd-{__version__}"
SDIST, WHEEL, BOM, SUMS = f"{NAME}.tar.gz", f"{NAME}-py3-none-any.whl", f"{NAME}.cdx.json", "SHA256SUMS"
_PIN = re.compile(r"^([\w.-]+)==(\S+) \\\n((?:    --hash=sha256:\w+(?: \\)?\n)+)", re.M)
_VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
fault = JsonStrictValidator(SchemaVersion.from_version(sys.argv[1])).validate_str(sys.stdin.read())
sys.exit(fault and str(fault))
"""

Bom = dict[str, Any]


class NotReleased(Exception):
    """What a person has to do before a release can be built."""


# --- the two archives -------------------------------------------------------------------------------------


def tracked() -> list[str]:
    """Return the files of the repository, with new ones that are not ignored."""
    words = ("git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split("\0")
    return sorted(name for name in set(names) if name and (ROOT / name).is_file())


def last_commit_at() -> int:
    """Return when the last commit was made, in seconds since 1970: the time of each file in the archives."""
    words = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def copy(destination: Path, *, age_s: int, umask: int) -> Path:
    """Copy the repository's files to a new directory, ``age_s`` older and without the bits of ``umask``."""
    for name in tracked():
        copied = destination / name
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copied)
        copied.chmod(copied.stat().st_mode & 0o777 & ~umask)
        os.utime(copied, (copied.stat().st_mtime - age_s,) * 2)
    return destination


def build(source: Path, target: str, destination: Path, *, epoch: int, zone: str = "UTC") -> bytes:
    """Build one archive of the files in ``source``; return its bytes."""
    name = {"sdist": SDIST, "wheel": WHEEL}[target]
    words = (sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(destination))
    environment = os.environ | {"SOURCE_DATE_EPOCH": str(epoch), "TZ": zone}
    done = subprocess.run(words, cwd=source, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotReleased(f"the {target} was not built:\n{done.stdout}{done.stderr}")
    return (destination / name).read_bytes()


def build_twice(scratch: Path, *, epoch: int) -> Mapping[str, bytes]:
    """Return the sdist and the wheel by file name. Raise NotReleased where two builds of one differ."""
    one = copy(scratch / "1", age_s=0, umask=0o022)
    first = {SDIST: build(one, "sdist", scratch / "a", epoch=epoch)}
    first[WHEEL] = build(one, "wheel", scratch / "a", epoch=epoch)
    two = copy(scratch / "second" / "copy", age_s=40_000_000, umask=0o077)
    second = {SDIST: build(two, "sdist", scratch / "b", epoch=epoch, zone="Asia/Tokyo")}
    with tarfile.open(scratch / "b" / SDIST) as archive:
        archive.extractall(scratch / "unpacked", filter="data")
    unpacked = scratch / "unpacked" / NAME
    second[WHEEL] = build(unpacked, "wheel", scratch / "b", epoch=epoch, zone="Asia/Tokyo")
    if differ := [name for name in first if first[name] != second[name]]:
        raise NotReleased(f"two builds differ: {', '.join(differ)}")
    return first


# --- the list of packages ---------------------------------------------------------------------------------


def pins(constraints: str) -> Mapping[str, tuple[str, list[str]]]:
    """Return version and SHA-256 hashes of each pinned package, by its name in PyPI's spelling."""
    found = {spelled(name): (version, hashes) for name, version, hashes in _PIN.findall(constraints)}
    return {name: (version, re.findall(r"sha256:(\w+)", hashes)) for name, (version, hashes) in found.items()}


def spelled(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def bill(environment: Bom, *, all_pins: str, required: str) -> Bom:
    """Return the CycloneDX list of an environment: its pinned packages, with the hashes of their files.

    Raise NotReleased if the environment does not have exactly the version of each pin.
    """
    known, always = pins(all_pins), pins(required)
    components = [each for each in environment["components"] if spelled(each["name"]) in known]
    has = {spelled(each["name"]): each["version"] for each in components}
    if other := [name for name, (version, _) in known.items() if has.get(name) != version]:
        raise NotReleased(f"not installed as pinned: {', '.join(other)}; type `make clean dev`")
    for each in components:
        name = spelled(each["name"])
        hashes = [{"alg": "SHA-256", "content": digest} for digest in known[name][1]]
        files = {"type": "distribution", "url": f"https://pypi.org/simple/{name}/", "hashes": hashes}
        each["externalReferences"] = [*each.get("externalReferences", ()), files]
        each["scope"] = "required" if name in always else "optional"
    refs = {each["bom-ref"] for each in components}
    root = environment["metadata"]["component"]
    root["version"] = __version__
    edges = [
        {"ref": each["ref"], **({"dependsOn": below} if below else {})}
        for each in environment["dependencies"]
        if each["ref"] in refs or each["ref"] == root["bom-ref"]
        for below in [[ref for ref in each.get("dependsOn", ()) if ref in refs]]
    ]
    return environment | {"components": components, "dependencies": edges}


def packages(tool: Path) -> bytes:
    """Return the list of packages as CycloneDX JSON, valid by its schema; ``tool`` is ``cyclonedx-py``."""
    words = (
        str(tool),
        "environment",
        "--pyproject",
        "pyproject.toml",
        "--output-reproducible",
        sys.executable,
    )
    made = subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True)
    texts = [(ROOT / name).read_text() for name in ("constraints-all.txt", "constraints.txt")]
    listed = bill(json.loads(made.stdout), all_pins=texts[0], required=texts[1])
    text = json.dumps(listed, indent=2, sort_keys=True) + "\n"
    check = (str(tool.with_name("python")), "-c", _VALIDATE, listed["specVersion"])
    fault = subprocess.run(check, input=text, capture_output=True, text=True, check=False)
    if fault.returncode:
        raise NotReleased(f"the list of packages is not valid: {fault.stderr}")
    return text.encode()


# --- the release ------------------------------------------------------------------------------------------


def sums(files: Mapping[str, bytes]) -> str:
    """Return the lines that ``sha256sum --check`` reads."""
    return "".join(f"{hashlib.sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files))


def faults(changelog: str, changed: Iterable[str]) -> list[str]:
    """Return why the present files are no release."""
    dated = re.search(rf"^## \[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d$", changelog, re.M)
    missing = [] if dated else [f"CHANGELOG.md has no section with a date for {__version__}"]
    return missing + [f"not committed: {name}" for name in changed]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make release")
    parser.add_argument("--tool", type=Path, required=True, help="cyclonedx-py")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    given = parser.parse_args(arguments)
    status = ("git", "-C", str(ROOT), "status", "--porcelain")
    changed = subprocess.run(status, check=True, capture_output=True, text=True).stdout.splitlines()
    try:
        if found := faults((ROOT / "CHANGELOG.md").read_text(), (line[3:] for line in changed)):
            raise NotReleased("\n".join(found))
        with tempfile.TemporaryDirectory() as scratch:
            files = dict(build_twice(Path(scratch), epoch=last_commit_at()))
        files[BOM] = packages(given.tool.absolute())
    except NotReleased as fault:
        print(f"no release: {fault}", file=sys.stderr)
        return 1
    files[SUMS] = sums(files).encode()
    given.into.mkdir(exist_ok=True)
    for name, content in files.items():
        (given.into / name).write_bytes(content)
    print(f"the same bytes from two builds; in {given.into}:\n{files[SUMS].decode()}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
