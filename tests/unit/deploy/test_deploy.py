"""What lies in deploy/ names settings, paths and files that there are. `make deploy-check` asks the tools that run it."""

import ast
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock import __version__
from penstock.pipeline.spec.parse import load_spec
from penstock.server.config import Config
from penstock.server.reference import _HEALTH
from penstock.server.sources import load

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
VARIANTS = ("embedded", "cluster")
CONTAINERFILE = (DEPLOY / "container/Containerfile").read_text()
STAGE = CONTAINERFILE[CONTAINERFILE.rindex("\nFROM ") :]  # the last one, which is the image


def manifests(variant: str) -> dict[str, Any]:
    """The plain manifests by kind; the headless service goes by its name."""
    found = yaml.safe_load_all((DEPLOY / "kubernetes" / variant / "penstock.yaml").read_text())
    return {
        one["metadata"]["name"] if "headless" in one["metadata"]["name"] else one["kind"]: one
        for one in found
    }


def pod(variant: str) -> dict[str, Any]:
    by_kind = manifests(variant)
    spec: dict[str, Any] = by_kind["StatefulSet" if variant == "embedded" else "Deployment"]["spec"][
        "template"
    ]["spec"]
    return spec


def image_environment() -> dict[str, str]:
    (text,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", STAGE, re.M)
    return dict(pair.split("=", 1) for pair in text.replace("\\\n", " ").split())


def config_of(variables: dict[str, str]) -> Config:
    return load(environment={name: text for name, text in variables.items() if name != "PENSTOCK_CONFIG"})


@pytest.mark.parametrize("variant", VARIANTS)
def test_manifests_have_settings_that_there_are(tmp_path: Path, variant: str) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text(manifests(variant)["ConfigMap"]["data"]["penstock.toml"])
    (container,) = pod(variant)["containers"]
    variables = {one["name"]: one.get("value", "10.0.0.1") for one in container["env"]}
    variables |= image_environment()
    config_path = variables.pop("PENSTOCK_CONFIG")
    config = load(
        file=file,
        environment={name: text.replace("$(POD_IP)", "10.0.0.1") for name, text in variables.items()},
    )
    assert config.auth.enabled
    assert config.http.listen == "0.0.0.0:8080"
    assert bool(config.engine.url) is (variant == "cluster")
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {str(Path(config_path).parent), str(Path(config.auth.token_secret_key_file).parent)} <= mounts
    assert str(config.data.folder) in mounts


@pytest.mark.parametrize("variant", VARIANTS)
def test_pods_have_no_privileges_and_probes_that_are_answered(variant: str) -> None:
    spec = pod(variant)
    (container,) = spec["containers"]
    assert spec["enableServiceLinks"] is False  # PENSTOCK_HEADLESS_SERVICE_HOST would be an unknown setting
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["image"] == f"penstock:{__version__}"
    paths = {operation.path for operation in _HEALTH}
    probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")]
    assert [probe["path"] for probe in probes] == ["/health/live", "/health/ready", "/health/live"]
    assert paths >= {probe["path"] for probe in probes}
    assert {probe["port"] for probe in probes} <= {port["name"] for port in container["ports"]}
    # The server has its time: it waits for what is in flight, and 20 s more for a cluster, after those who route know.
    assert spec["terminationGracePeriodSeconds"] > Config().http.drain_ms / 1000 + 20 + 5


def test_the_versions_are_the_server_s() -> None:
    chart = yaml.safe_load((DEPLOY / "helm/penstock/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)
    for variant in VARIANTS:
        built = yaml.safe_load((DEPLOY / "kubernetes" / variant / "kustomization.yaml").read_text())
        assert built["images"] == [{"name": "penstock", "newName": "penstock", "newTag": __version__}]


@pytest.mark.parametrize("name", ["prometheus/penstock.rules.yml", "grafana/penstock.json"])
def test_the_chart_has_the_files_of_which_there_is_one(name: str) -> None:
    assert (DEPLOY / "helm/penstock/files" / Path(name).name).resolve() == DEPLOY / name


def test_the_image_serves_without_privileges() -> None:
    assert re.search(r"^USER [1-9]\d+:[1-9]\d+$", STAGE, re.M)
    assert re.search(r'^ENTRYPOINT \["penstock"\]$', STAGE, re.M)  # in exec form: SIGTERM reaches the server
    assert "STOPSIGNAL SIGTERM" in STAGE
    environment = image_environment()
    config = config_of({name: text for name, text in environment.items() if name.startswith("PENSTOCK_")})
    assert f"VOLUME {config.data.folder}" in STAGE
    assert "EXPOSE 8080 6650" in STAGE
    (command,) = re.findall(r"HEALTHCHECK.*\n\s*CMD (\[.*\])$", STAGE, re.M)
    python, option, program = json.loads(command)
    assert (python, option) == ("python", "-c")
    ast.parse(program)
    assert "/health/live" in program


def test_the_container_file_copies_what_there_is() -> None:
    kept = {
        line.removeprefix("!")
        for line in (DEPLOY / "container/Containerfile.dockerignore").read_text().split("\n")
    }
    copied = [line.split()[1:-1] for line in re.findall(r"^COPY (?!--from).*$", CONTAINERFILE, re.M)]
    sources = [source for sources in copied for source in sources]
    assert len(sources) >= 5
    for source in sources:
        assert (ROOT / source).exists()
        assert source.split("/")[0] in kept


def test_compose_has_settings_and_files_that_there_are() -> None:
    file = DEPLOY / "compose/compose.yaml"
    services = yaml.safe_load(file.read_text())["services"]
    server = services["penstock"]
    assert config_of(server["environment"]).auth.enabled
    assert server["read_only"] is True
    assert all(
        port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", ())
    )
    build = server["build"]
    context = (file.parent / build["context"]).resolve()
    assert (context, (context / build["dockerfile"]).read_text()) == (ROOT, CONTAINERFILE)
    mounted = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", ())]
    for source in mounted:
        if source.startswith("."):
            assert (file.parent / source).exists()


def units() -> Iterator[str]:
    for name in ("penstock.service", "auth.conf"):
        yield (DEPLOY / "systemd" / name).read_text()


def test_the_unit_has_settings_that_there_are() -> None:
    variables = dict(re.findall(r"^Environment=(PENSTOCK_\w+)=(.*)$", "\n".join(units()), re.M))
    assert config_of(variables).auth.enabled
    load(file=DEPLOY / "systemd/penstock.toml")
    unit = next(units())
    assert "Type=notify" in unit
    (stop_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.M)
    assert int(stop_s) > Config().http.drain_ms / 1000 + 20


def said_of_the_unit(folder: Path, unit: str, drop_in: str) -> list[str]:
    """What systemd finds wrong with it; units of this machine that it depends on may have faults of their own."""
    file, beside = folder / "penstock.service", folder / "penstock.service.d" / "auth.conf"
    beside.parent.mkdir(parents=True)
    file.write_text(unit.replace("/opt/penstock/bin/penstock", "/bin/true"))  # which has to be there
    beside.write_text(drop_in)
    command = ["systemd-analyze", "verify", "--man=no", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return [line for line in done.stderr.splitlines() if "penstock" in line]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit, drop_in = units()
    assert said_of_the_unit(tmp_path / "good", unit, drop_in) == []
    assert said_of_the_unit(tmp_path / "bad", unit.replace("Type=notify", "Type=notfy"), drop_in)
    assert said_of_the_unit(tmp_path / "worse", unit, drop_in + "ProtectSystm=yes\n")


def test_provisioning_finds_the_dashboard() -> None:
    grafana = DEPLOY / "grafana"
    (provider,) = yaml.safe_load((grafana / "provisioning/dashboards/penstock.yml").read_text())["providers"]
    volumes = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())["services"]["grafana"]["volumes"]
    assert f"../grafana/penstock.json:{provider['options']['path']}/penstock.json:ro" in volumes
    (source,) = yaml.safe_load((grafana / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["type"] == "prometheus"


def test_the_project_s_version_is_the_package_s() -> None:
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"] == __version__


def test_pipelines_are_stopped_by_their_supervisor_and_keep_their_state() -> None:
    unit = (DEPLOY / "systemd/penstock-pipeline@.service").read_text()
    assert re.search(
        r"^ExecStart=\S+/penstock pipeline run \S+/%i\.toml --state /var/lib/penstock-pipelines$", unit, re.M
    )
    assert re.search(r"^StateDirectory=penstock-pipelines$", unit, re.M)
    assert re.search(r"^KillMode=mixed$", unit, re.M)  # else Spark gets SIGTERM, too
    assert "MemoryDenyWriteExecute=yes" not in unit  # Java compiles
    image = (DEPLOY / "container/Containerfile.pipelines").read_text()
    (extras,) = re.findall(r"EXTRAS=(\S+)", image)
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"spark", "delta", "jre"} <= set(extras.split(",")) <= set(there)


def test_pipelines_in_kubernetes_run_files_that_there_are(tmp_path: Path) -> None:
    found = list(yaml.safe_load_all((DEPLOY / "kubernetes/pipelines/penstock.yaml").read_text()))
    (files,) = (one["data"] for one in found if one["kind"] == "ConfigMap")
    kinds = {one["kind"]: one for one in found}
    assert kinds["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"
    for kind, job in (
        ("Job", kinds["Job"]["spec"]),
        ("CronJob", kinds["CronJob"]["spec"]["jobTemplate"]["spec"]),
    ):
        pod = job["template"]["spec"]
        (container,) = pod["containers"]
        assert container["image"] == f"penstock-pipelines:{__version__}"
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        command, verb, path, option, state, *rest = container["args"]
        assert (command, verb, option, state.split("://")[0]) == ("pipeline", "run", "--state", "s3")
        assert rest == (["--once"] if kind == "CronJob" else [])
        (tmp_path / Path(path).name).write_text(files[Path(path).name])
        spec = load_spec(tmp_path / Path(path).name)
        mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
        assert {str(Path(path).parent), str(Path(spec.server.token_file).parent)} <= mounts
