"""Manifest and image recipe of ``docs/examples/fleet``, by schema and structure: there is no cluster here."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from ralphd.config import configuration as config
from tests.pages import ROOT

EXAMPLES = ROOT / "docs" / "examples" / "fleet"


@pytest.fixture(scope="module")
def objects() -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())}


def all_of(value: Any, key: str) -> Iterator[Any]:
    """Every value of a key, at any depth."""
    if isinstance(value, dict):
        yield from (found for name, found in value.items() if name == key)
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from all_of(each, key)


def test_each_object_has_the_schema_of_kubernetes(objects: dict[str, Any]) -> None:
    for each in objects.values():
        kubernetes_validate.validate(each, "1.33", strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**objects["Service"], "clusterIP": "None"}, "1.33", strict=True)


def test_ralphd_takes_the_configuration(objects: dict[str, Any], tmp_path: Path) -> None:
    place = tmp_path / "ralph" / "config.toml"
    place.parent.mkdir()
    place.write_text(objects["ConfigMap"]["data"]["config.toml"])
    given = config.load(None, environ={"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)})
    assert given.fleet.labels == ("linux", "kubernetes")


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

    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["automountServiceAccountToken"] is False
    assert [each["allowPrivilegeEscalation"] for each in contexts if "capabilities" in each] == [False] * 2
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


def test_the_manifest_says_it_was_not_run() -> None:
    assert "NOT RUN ON A CLUSTER" in (EXAMPLES / "kubernetes.yaml").read_text()


def test_the_image_has_what_a_host_needs() -> None:
    text = (EXAMPLES / "Containerfile").read_text()
    words = dict(re.findall(r"^([A-Z]+) (.*)$", text, re.MULTILINE))

    assert words["FROM"] == "python:3.11-slim"
    assert 'pip install --no-cache-dir "/opt/ralphd[fleet]"' in text and re.search(r"\bgit\b", text)
    assert (words["USER"], words["ENTRYPOINT"]) == ("ralph", '["ralphd"]')
