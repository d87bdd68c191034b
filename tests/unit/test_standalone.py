"""What `clockhand dev` keeps in files, and whom it takes for its own."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from clockhand import errors
from clockhand.standalone import credentials, home, kubeconfig, leash, orphans, passage
from clockhand.standalone.nodes import leftovers

NOW = datetime(2026, 11, 30, tzinfo=UTC)
UID = 54_321


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_a_certificate_is_kept_until_it_is_about_to_expire(tmp_path: Path) -> None:
    one = home.Home(tmp_path)
    files = kubeconfig.certificate(one, NOW)
    first, authority = loaded(files.certificate), loaded(files.authority)
    names = first.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == {"localhost", "127.0.0.1", "::1"}
    kubeconfig.certificate(one, NOW + timedelta(days=30))
    assert loaded(files.certificate) == first
    kubeconfig.certificate(one, NOW + timedelta(days=80))
    assert loaded(files.certificate) != first
    assert loaded(files.authority) == authority
    loaded(files.certificate).verify_directly_issued_by(authority)


def test_half_of_a_certificate_is_made_anew(tmp_path: Path) -> None:
    files = kubeconfig.certificate(home.Home(tmp_path), NOW)
    first = loaded(files.certificate)
    files.key.write_text("half", encoding="utf-8")
    kubeconfig.certificate(home.Home(tmp_path), NOW)
    assert loaded(files.certificate) != first


def test_a_kubeconfig_of_ours_is_written_over_and_one_of_others_is_not(tmp_path: Path) -> None:
    files = kubeconfig.certificate(home.Home(tmp_path), NOW)
    path = tmp_path / "kubeconfig"
    path.touch()
    for port in (1, 2):
        kubeconfig.write(path, port=port, files=files, token="t")
        [cluster] = yaml.safe_load(path.read_text(encoding="utf-8"))["clusters"]
        assert cluster["cluster"]["server"] == f"https://127.0.0.1:{port}"
    ours = yaml.safe_load(path.read_text(encoding="utf-8"))
    for theirs in (
        "contexts: [{name: production}]",
        "contexts: [{name: clockhand-dev}, {name: x}]",
        "users: [{name: production}]",
        yaml.safe_dump({**ours, "users": [*ours["users"], {"name": "production"}]}),
        yaml.safe_dump({**ours, "users": ["production"]}),
        "- a",
        "{",
    ):
        path.write_text(theirs, encoding="utf-8")
        with pytest.raises(errors.InvalidInput, match="name another file"):
            kubeconfig.write(path, port=1, files=files, token="t")
        assert path.read_text(encoding="utf-8") == theirs


def test_a_token_is_made_once_and_for_its_owner_alone(tmp_path: Path) -> None:
    made = credentials.editor(tmp_path / "new" / "token")
    assert made == credentials.editor(made.file)
    assert stat.S_IMODE(made.file.stat().st_mode) == 0o600
    made.file.write_text("two words", encoding="utf-8")
    with pytest.raises(errors.InvalidInput, match="no token of 8 to 200 characters"):
        credentials.editor(made.file)


def test_a_data_directory_is_locked_while_it_is_used(tmp_path: Path) -> None:
    taken = pytest.raises(errors.Conflict, match=rf"process {os.getpid()}")
    with home.kept(tmp_path / "data"), taken, home.kept(tmp_path / "data"):
        pass
    with home.kept(tmp_path / "data") as again:
        assert again.root == tmp_path / "data"


def left_over(temporary: Path, name: str) -> Path:
    folder = temporary / f"clockhand-dev-{name}"
    folder.mkdir(mode=0o700)
    (folder / "lock").write_text("1", encoding="utf-8")
    return folder


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = left_over(tmp_path, "left")
    (tmp_path / "clockhand-dev-begun").mkdir(mode=0o700)  # has no lock yet
    mark = leftovers.mark(left / "cluster" / "node", "uid", "main")
    with subprocess.Popen(["sleep", "60"], env={leftovers.MARK: mark}) as process, home.ephemeral() as one:
        assert not left.exists()
        assert process.wait() == -9
        with home.ephemeral():
            assert one.root.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["clockhand-dev-begun"]


@pytest.mark.skipif(os.geteuid() != 0, reason="for root alone")
def test_a_folder_of_somebody_else_is_not_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ours = tmp_path / "authorized_keys"
    ours.write_text("ours", encoding="utf-8")
    trap = tmp_path / "clockhand-dev-trap"
    trap.mkdir()
    (trap / "lock").symlink_to(ours)
    os.chown(trap, UID, UID)
    with home.ephemeral():
        assert ours.read_text(encoding="utf-8") == "ours"
    assert trap.exists()


def test_a_process_is_known_by_its_beginning() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        began = orphans.beginning(process.pid)
        assert began
        assert began != orphans.beginning(os.getpid())
        process.kill()
        process.wait()
        assert not orphans.beginning(process.pid)


def test_only_what_was_recorded_is_ended(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as ours, subprocess.Popen(["sleep", "60"]) as theirs:
        orphans.Record(tmp_path / "tree.json").add(ours.pid)
        text = (tmp_path / "tree.json").read_text(encoding="utf-8")
        # the id of another process, which began at another time
        (tmp_path / "tree.json").write_text(text.replace("{", f'{{"{theirs.pid}":"once",'), encoding="utf-8")
        asyncio.run(orphans.Record(tmp_path / "tree.json").end_all())
        assert ours.wait() == -9
        assert theirs.poll() is None
        theirs.kill()


def test_what_is_tied_ends_with_who_started_it() -> None:
    script = (
        "import subprocess, sys; from clockhand.standalone import leash;"
        "print(subprocess.Popen(leash.command(['/bin/sleep', '60']), stdout=subprocess.DEVNULL).pid, flush=True);"
        "sys.stdin.read(); import os; os._exit(0)"
    )
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        assert parent.stdin
        pid = int(parent.stdout.readline())
        while orphans.beginning(pid) and (Path("/proc") / f"{pid}/comm").read_text(encoding="utf-8") != "sleep\n":
            pass
        assert orphans.beginning(pid)
        parent.stdin.close()
    while orphans.beginning(pid):
        pass


def test_what_has_lost_its_parent_before_it_is_tied_does_not_start() -> None:
    command = [*leash.command(["/bin/echo", "started"])]
    command[command.index(f"{os.getpid()}")] = "1"
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "is gone" in ended.stderr
    assert not ended.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="for root alone")
def test_one_user_may_pass_a_closed_folder_and_nobody_else(tmp_path: Path) -> None:
    closed, program = tmp_path / "closed", tmp_path / "closed" / "program"
    closed.mkdir(mode=0o700)
    program.write_text("#!/bin/sh\necho ran\n", encoding="utf-8")
    program.chmod(0o755)
    assert not runs(program, UID)
    assert closed in passage.open_to(UID, program)
    assert runs(program, UID)
    assert not runs(program, UID + 1)
    assert not subprocess.run(["ls", closed], user=UID, capture_output=True, check=False).stdout
    assert not passage.open_to(UID, program)
    closed.chmod(0o700)  # which masks what the list says
    assert not runs(program, UID)
    assert passage.open_to(UID, program) == [closed]
    assert runs(program, UID)


def runs(program: Path, uid: int) -> bool:
    command = ["sh", "-c", f"exec {program}"]
    return (
        subprocess.run(command, user=uid, group=uid, extra_groups=[], capture_output=True, check=False).stdout
        == b"ran\n"
    )
