"""What a container says becomes a command: variables, arguments, volumes, and paths that stand for folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clockhand import errors
from clockhand.standalone.nodes import manifest, rendering, volumes

FOUND: rendering.Objects = {
    ("ConfigMap", "settings"): {"colour": b"blue", "not a name!": b"x"},
    ("Secret", "login"): {"user": b"ada", "password": b"pa$$word"},
}
NO_PATHS = rendering.Paths({})


def a_pod(*, spec: dict[str, Any] | None = None, **container: Any) -> manifest.Pod:
    metadata = {
        "name": "p",
        "namespace": "team-a",
        "uid": "u-1",
        "labels": {"app": "x"},
        "annotations": {"b": "2", "a": "1"},
    }
    return manifest.read(
        {"metadata": metadata, "spec": {"containers": [{"name": "main", **container}], **(spec or {})}}
    )


def rendered(pod: manifest.Pod, paths: rendering.Paths = NO_PATHS, **others: Any) -> rendering.Command:
    container = pod.spec.containers[0]
    return rendering.command(pod, container, found=FOUND, paths=paths, base={"PATH": "/bin"}, directory="/w", **others)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$(A)$(B)", "1two"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(MISSING)", "$(MISSING)"),
        ("$A ${A} $", "$A ${A} $"),
        ("$(A", "$(A"),
        ("", ""),
    ],
)
def test_references_are_expanded_as_kubernetes_does(text: str, expected: str) -> None:
    assert rendering.expand(text, {"A": "1", "B": "two"}) == expected


def test_variables_come_in_their_order_and_may_name_earlier_ones() -> None:
    pod = a_pod(
        command=["run", "$(GREETING)", "$(LATER)"],
        env=[
            {"name": "NAME", "value": "world"},
            {"name": "GREETING", "value": "hello $(NAME) $(LATER)"},
            {"name": "LATER", "value": "later"},
        ],
    )

    made = rendered(pod)

    assert made.environment["GREETING"] == "hello world $(LATER)"
    assert made.arguments == ("run", "hello world $(LATER)", "later")
    assert made.environment["HOSTNAME"] == "p"


def test_variables_come_from_objects_and_from_the_pod() -> None:
    pod = a_pod(
        command=["x"],
        envFrom=[
            {"configMapRef": {"name": "settings"}, "prefix": "S_"},
            {"secretRef": {"name": "no", "optional": True}},
        ],
        env=[
            {"name": "USER", "valueFrom": {"secretKeyRef": {"name": "login", "key": "user"}}},
            {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "login", "key": "no", "optional": True}}},
            {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
            {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        ],
    )

    found = rendered(pod).environment

    assert {name: found[name] for name in ("S_colour", "USER", "ME", "LABEL")} == {
        "S_colour": "blue",
        "USER": "ada",
        "ME": "team-a",
        "LABEL": "x",
    }
    assert "GONE" not in found
    assert "S_not a name!" not in found


@pytest.mark.parametrize(
    "one",
    [
        {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "missing", "key": "k"}}}]},
        {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "login", "key": "k"}}}]},
        {"envFrom": [{"configMapRef": {"name": "missing"}}]},
    ],
)
def test_what_is_not_there_yet_is_waited_for(one: dict[str, Any]) -> None:
    with pytest.raises(errors.NotFound):
        rendered(a_pod(command=["x"], **one))


def test_without_a_command_there_is_nothing_to_run() -> None:
    with pytest.raises(rendering.NoCommand, match="no image to ask"):
        rendered(a_pod(image="busybox"))


def test_arguments_alone_are_the_command_of_an_image_without_one() -> None:
    assert rendered(a_pod(args=["echo", "hi"])).arguments == ("echo", "hi")
    assert rendered(a_pod(args=["worker"]), entrypoint=("clockhand",)).arguments == ("clockhand", "worker")


def test_paths_of_volumes_are_replaced_as_whole_paths() -> None:
    paths = rendering.Paths({"/data": "/d/1", "/data/inner/": "/d/2", "/tmp": "/d/3"})

    assert paths("/data") == "/d/1"
    assert paths("cat /data/x > /data/inner/y; ls /database /tmp") == "cat /d/1/x > /d/2/y; ls /database /d/3"
    assert paths("--in=/data:/data/inner") == "--in=/d/1:/d/2"
    assert paths("/srv/data a/data ./data") == "/srv/data a/data ./data"


def test_data_of_a_run_is_not_touched_by_paths() -> None:
    payload = '{"path": "/data/x", "price": "$$5"}'
    pod = a_pod(
        command=["x", "$(CLOCKHAND_PAYLOAD)"],
        env=[{"name": "CLOCKHAND_PAYLOAD", "value": payload}, {"name": "DIR", "value": "/data"}],
        workingDir="/data/sub",
    )

    made = rendered(pod, rendering.Paths({"/data": "/d/1"}))

    assert made.environment["CLOCKHAND_PAYLOAD"] == '{"path": "/data/x", "price": "$5"}'
    assert made.arguments[1] == '{"path": "/data/x", "price": "$5"}'
    assert made.environment["DIR"] == "/d/1"
    assert made.directory == "/d/1/sub"


def test_a_pod_inherits_nothing_of_ours_and_no_secrets() -> None:
    given = {
        "PATH": "/usr/bin",
        "HOME": "/home/ada",
        "LANG": "C.UTF-8",
        "CLOCKHAND_DATABASE_URL": "postgresql://",
        "GITHUB_TOKEN": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "PGPASSWORD": "x",
        "KUBECONFIG": "/k",
    }

    found = rendering.inherited(given, programs="/venv/bin")

    assert found == {"PATH": "/usr/bin:/venv/bin", "HOME": "/home/ada", "LANG": "C.UTF-8"}


def test_files_of_volumes() -> None:
    pod = a_pod(
        command=["x"],
        spec={
            "volumes": [
                {"name": "all", "configMap": {"name": "settings"}},
                {"name": "some", "secret": {"secretName": "login", "items": [{"key": "user", "path": "in/user.txt"}]}},
                {"name": "empty", "emptyDir": {}},
                {
                    "name": "mixed",
                    "projected": {
                        "sources": [
                            {"configMap": {"name": "settings", "items": [{"key": "colour", "path": "c"}]}},
                            {"serviceAccountToken": {"path": "token", "audience": "us", "expirationSeconds": 600}},
                            {
                                "downwardAPI": {
                                    "items": [{"path": "notes", "fieldRef": {"fieldPath": "metadata.annotations"}}]
                                }
                            },
                        ]
                    },
                },
            ]
        },
    )

    assert volumes.contents(pod, FOUND) == {
        "all/colour": b"blue",
        "all/not a name!": b"x",
        "some/in/user.txt": b"ada",
        "mixed/c": b"blue",
        "mixed/notes": b'a="1"\nb="2"',
    }
    assert volumes.tokens(pod) == [volumes.TokenFile("mixed/token", "us", 600)]
    assert rendering.references(pod) == {("ConfigMap", "settings"), ("Secret", "login")}


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "a/../../b", ""])
def test_no_file_leaves_its_volume(path: str) -> None:
    keys = {"name": "settings", "items": [{"key": "colour", "path": path}]}
    pod = a_pod(command=["x"], spec={"volumes": [{"name": "v", "configMap": keys}]})

    with pytest.raises(errors.InvalidInput):
        volumes.contents(pod, FOUND)


def test_mounts_stand_for_folders(tmp_path: Path) -> None:
    pod = a_pod(
        command=["x"],
        volumeMounts=[
            {"name": "scratch", "mountPath": "/tmp"},
            {"name": "scratch", "mountPath": "/cache", "subPath": "cache"},
            {"name": "here", "mountPath": "/host"},
        ],
        spec={"volumes": [{"name": "scratch", "emptyDir": {}}, {"name": "here", "hostPath": {"path": "/srv"}}]},
    )

    volumes.prepare(pod, tmp_path)

    assert volumes.folders(pod, pod.spec.containers[0], tmp_path) == {
        "/tmp": f"{tmp_path}/scratch",
        "/cache": f"{tmp_path}/scratch/cache",
        "/host": "/srv",
    }
    assert (tmp_path / "scratch/cache").is_dir()


def test_a_volume_that_needs_a_cluster_is_refused_by_name() -> None:
    with pytest.raises(errors.InvalidInput, match="persistentVolumeClaim"):
        a_pod(command=["x"], spec={"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]})


def test_a_pod_with_wrong_types_is_refused() -> None:
    with pytest.raises(errors.InvalidInput, match="containers"):
        a_pod(command="echo")
