"""The command line beside `clockhand dev`: without settings of its own, and with the token of a user of the cluster."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.support import dev
from tests.support.generated import ROOT
from tests.support.kubectl import Kubectl
from tests.support.shell import SECONDS, Shell


async def test_what_it_does_without_settings_and_for_a_user_of_the_cluster(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with dev.started(tmp_path, "--kubeconfig", str(kubeconfig)) as one:
        await one.until_ready()
        shell = Shell({"PATH": os.environ["PATH"], "HOME": str(tmp_path)}, tmp_path)
        shell("jobs", "create", "hello", "--every", "1h", "--handler", "echo", "--payload", "[1]")
        assert shell.json("jobs", "run", "hello", "--wait")["result"] == [1]
        hello = str(ROOT / "examples/hello.yaml")
        assert "needs a Kubernetes token" in shell("apply", "-f", hello, fails=1)

        person = ("--token-file", str(one.person), "-n", "default")
        assert shell("apply", "-f", hello, *person) == "hello created\n"
        assert shell("apply", "-f", hello, *person) == "hello unchanged\n"
        assert shell.json("jobs", "run", "hello", "--wait", *person)["state"] == "Succeeded"

        bad = tmp_path / "bad.yaml"
        good = (ROOT / "examples/hello.yaml").read_text()
        bad.write_text(good.replace("- name: hello", "- name: Bad_Name").replace("name: hello", "name: bad"))
        assert shell("apply", "-f", str(bad), *person) == "bad created\n"
        for _ in range(SECONDS):
            status = shell.json("jobs", "get", "bad", *person)["status"]
            if status["standing"] != "Active":
                break
            await asyncio.sleep(0.5)
        assert (status["standing"], "Bad_Name" in status["message"]) == ("Invalid", True)

        Kubectl(kubeconfig).run("apply", "-f", str(ROOT / "examples/interval.yaml"))
        Kubectl(kubeconfig).run("wait", "--for=condition=Ready", "sjob/interval", "--timeout=100s")
        assert shell("jobs", "pause", "interval", *person, fails=1).count("kubectl") == 1
        assert shell.json("jobs", "run", "interval", "--wait", *person)["state"] == "Succeeded"
