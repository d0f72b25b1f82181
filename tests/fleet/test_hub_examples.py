"""Manifest and image recipe of ``docs/examples/fleet``, by their structure: there is no cluster here."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.pages import ROOT

EXAMPLES = ROOT / "docs" / "examples" / "fleet"
Lines = list[tuple[int, str]]


def parsed(text: str) -> list[Any]:
    """The documents of a YAML file of blocks, plain scalars, ``|``, and comments on lines of their own."""
    return [block(lines_of(part), 0)[0] for part in re.split(r"^---$", text, flags=re.MULTILINE)]


def lines_of(text: str) -> Lines:
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return [(len(line) - len(line.lstrip()), line.strip()) for line in lines]


def block(lines: Lines, at: int) -> tuple[Any, int]:
    """The value that begins at a line, and the line after it."""
    indent, first = lines[at]
    if first.startswith("- "):
        items: list[Any] = []
        while at < len(lines) and lines[at][0] == indent and lines[at][1].startswith("- "):
            lines[at] = (indent + 2, lines[at][1][2:])
            is_map = re.match(r"[\w.-]+:( |$)", lines[at][1])
            value, at = block(lines, at) if is_map else (lines[at][1].strip('"'), at + 1)
            items.append(value)
        return items, at
    values: dict[str, Any] = {}
    while at < len(lines) and lines[at][0] == indent and not lines[at][1].startswith("- "):
        key, colon, rest = lines[at][1].partition(":")
        assert colon and key not in values, lines[at]
        at += 1
        if rest.strip() == "|":
            end = next((n for n in range(at, len(lines)) if lines[n][0] <= indent), len(lines))
            values[key], at = "\n".join(text for _, text in lines[at:end]), end
        elif rest.strip():
            values[key] = rest.strip().strip('"')
        else:
            values[key], at = block(lines, at)
    return values, at


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {each["kind"]: each for each in parsed((EXAMPLES / "kubernetes.yaml").read_text())}


def all_of(value: Any, key: str) -> Iterator[Any]:
    """Every value of a key, at any depth."""
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == key)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from all_of(each, key)


def test_there_is_one_ralphd_a_pod(objects: dict[str, Any]) -> None:
    spec = objects["StatefulSet"]["spec"]
    pod = spec["template"]

    assert list(objects) == ["Namespace", "ConfigMap", "Service", "StatefulSet"]
    assert [each["name"] for each in pod["spec"]["containers"]] == ["ralphd"]
    assert spec["serviceName"] == objects["Service"]["metadata"]["name"]
    assert (
        spec["selector"]["matchLabels"] == pod["metadata"]["labels"] == objects["Service"]["spec"]["selector"]
    )
    names = {each["metadata"]["namespace"] for kind, each in objects.items() if kind != "Namespace"}
    assert names == {objects["Namespace"]["metadata"]["name"]}


def test_the_state_of_a_host_is_on_its_volume(objects: dict[str, Any]) -> None:
    spec = objects["StatefulSet"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    variables = {each["name"]: each.get("value") for each in container["env"]}

    assert [each["metadata"]["name"] for each in spec["volumeClaimTemplates"]] == ["state"]
    assert variables["RALPHD_STATE_DIR"].startswith(mounts["state"] + "/")
    volumes = {each["name"] for each in spec["template"]["spec"]["volumes"]} | {"state"}
    assert {each["name"] for each in all_of(spec, "volumeMounts") for each in each} == volumes


def test_nothing_in_the_pod_is_privileged(objects: dict[str, Any]) -> None:
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    contexts = list(all_of(pod, "securityContext"))

    assert pod["securityContext"]["runAsNonRoot"] == "true"
    assert pod["automountServiceAccountToken"] == "false"
    assert [each["allowPrivilegeEscalation"] for each in contexts if "capabilities" in each] == ["false"] * 2
    assert [each["drop"] for each in all_of(pod, "capabilities")] == [["ALL"]] * 2
    for key in ("privileged", "hostNetwork", "hostPID", "hostPath", "hostPort", "add", "ports"):
        assert not list(all_of(pod, key)), key


def test_every_container_has_bounds(objects: dict[str, Any]) -> None:
    pod = objects["StatefulSet"]["spec"]["template"]["spec"]
    bounds = list(all_of(pod, "resources"))

    assert len(bounds) == len(pod["containers"] + pod["initContainers"])
    assert all(each["requests"]["cpu"] and each["limits"]["memory"] for each in bounds)


def test_credentials_come_from_a_secret(objects: dict[str, Any]) -> None:
    names = {each["secretName"] for each in all_of(objects, "secret")}
    names |= {each["name"] for each in all_of(objects, "secretKeyRef")}

    assert names == {"ralph-credentials"}
    assert tomllib.loads(objects["ConfigMap"]["data"]["config.toml"])["fleet"]["enabled"] is True


def test_the_manifest_says_it_was_not_run() -> None:
    assert "NOT RUN ON A CLUSTER" in (EXAMPLES / "kubernetes.yaml").read_text()


def test_the_image_has_what_a_host_needs() -> None:
    text = (EXAMPLES / "Containerfile").read_text()
    words = dict(re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE))

    assert words["FROM"] == "python:3.11-slim"
    assert 'pip install --no-cache-dir "ralphd[fleet]"' in text and re.search(r"\bgit\b", text)
    assert (words["USER"], words["ENTRYPOINT"]) == ("ralph", '["ralphd"]')
