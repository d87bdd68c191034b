"""The chart on a cluster that runs no containers: its processes run here, with all that its pods say of them.

Environment, mounted Secrets and ConfigMaps, arguments and service account are those of the Deployments that the API server
has. Only what a network gives to pods is replaced: ports, and the Service by which the API server finds the runs API.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import helm, installation, ports
from tests.support.kubectl import wait_for

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
Json = dict[str, Any]


class Charted(installation.Processes):
    """One release. Its parts are called what the chart calls them: operator, api and runs."""

    def install_chart(self, values: Mapping[str, Any], *secrets: Json) -> None:
        """With `secrets` beside that of the database; returns when all parts are ready."""
        own = self.kubectl.create_namespace(installation.OWN, labels=RESTRICTED)
        own.apply(secret("clockhand-database", {"url": self._url.encode()}), *secrets)
        # pools among the values must not have to wait for their kind: the API server of a busy machine takes its time
        own.run("apply", "--server-side", "-f", str(installation.ROOT / "crds"))
        own.run("wait", "--for=condition=Established", *installation.DEFINITIONS, "--timeout=100s")
        wait_for("the kinds to be served", lambda: own.call("get", "sjob,wpool,jobclass").code == 0)
        release = helm.Helm("helm4", self.kubectl.kubeconfig)
        install = ("install", helm.RELEASE, str(helm.CHART), "--take-ownership", "--timeout=3m")
        release.run(*install, values={**helm.DATABASE, **values})
        own.run("delete", "service", "clockhand-runs")
        own.apply(self._runs_service())
        port = json.dumps({"spec": {"service": {"port": self._runs_port}}})
        own.run("patch", "apiservice", installation.API_SERVICE, "--type=merge", "-p", port)
        self._migrate()
        for part in ("operator", "api", "runs"):
            self.start_part(part)
        self.wait_until_ready()

    def start_part(self, name: str, *, url: str | None = None) -> None:
        """As the pod of its Deployment would be."""
        deployment = self.kubectl.within(installation.OWN).get("deployment", f"clockhand-{name}")
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        self._health[name], api_port = ports.free(2)
        given = self._environment(pod["serviceAccountName"], url or self._url, self._health[name])
        places = {"CLOCKHAND_RUNS_PORT": given["CLOCKHAND_RUNS_PORT"], "CLOCKHAND_API_PORT": str(api_port)}
        self._start(name, container["args"], {**given, **self._told(name, pod, container), **places})

    def _told(self, name: str, pod: Json, container: Json) -> dict[str, str]:
        """The environment of a container; what lies below a mounted folder lies in one of this machine."""
        folders = {mount["mountPath"]: self._directory / name / mount["name"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for folder in folders.values():
            self._fill(folder, volumes[folder.name])
        told = {}
        for variable in container["env"]:
            value = str(variable["value"]) if "value" in variable else self._found(variable["valueFrom"])
            mounted, _, file = value.rpartition("/")
            told[variable["name"]] = str(folders[mounted] / file) if mounted in folders else value
        return told

    def _found(self, source: Json) -> str:
        asked = source.get("secretKeyRef")
        if asked is None:
            assert source == {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
            return installation.OWN
        found = self.kubectl.within(installation.OWN).get("secret", asked["name"])
        return base64.b64decode(found["data"][asked["key"]]).decode()

    def _fill(self, folder: Path, volume: Json) -> None:
        """What a kubelet would mount."""
        folder.mkdir(parents=True)
        own = self.kubectl.within(installation.OWN)
        if "secret" in volume:
            data = own.get("secret", volume["secret"]["secretName"])["data"]
            content = {key: base64.b64decode(value) for key, value in data.items()}
        elif "configMap" in volume:
            content = {
                key: text.encode() for key, text in own.get("configmap", volume["configMap"]["name"])["data"].items()
            }
        else:
            content = {}
        for key, value in content.items():
            (folder / key).write_bytes(value)


def secret(name: str, content: Mapping[str, bytes]) -> Json:
    """A Secret to apply."""
    data = {key: base64.b64encode(value).decode() for key, value in content.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": data}
