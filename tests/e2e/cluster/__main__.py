"""The commands behind `up`, `down`, `light-up`, `light-down` and `make images`: the only place that reads a command line."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.cluster import binaries, engine, images, kind_cluster, node_image, steps
from tests.support import light


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    try:
        return int(options.command(options))
    except steps.StepError as error:
        steps.say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        return 130


def up(options: argparse.Namespace) -> int:
    with binaries.locked("kind"):
        _up(options)
    print(f"export KUBECONFIG={kind_cluster.kubeconfig()}")
    print(f"export PATH={binaries.path('kubectl').parent}:$PATH")
    return 0


def build_images(_options: argparse.Namespace) -> int:
    with binaries.locked("kind"):
        engine.start()
        images.build_all(offline=not _registry())
    return 0


def _registry() -> bool:
    return not engine.is_ours() and node_image.registry_answers()


def _up(options: argparse.Namespace) -> None:
    engine.start()
    stock = options.stock or _registry()
    binaries.ensure(binaries.KIND_TOOLS)
    if not kind_cluster.exists():
        kind_cluster.create(node_image.pull_stock() if stock else node_image.build(), stock=stock)
    if options.images:
        kind_cluster.load(images.build_all(offline=not stock))


def down(options: argparse.Namespace) -> int:
    with binaries.locked("kind"):
        if engine.answers():
            binaries.ensure(("kind",))
            kind_cluster.delete()
        if not options.keep_engine:
            engine.stop()
    return 0


def light_up(options: argparse.Namespace) -> int:
    settings = light.LightSettings(
        nodes=options.nodes,
        port=options.port,
        etcd_port=options.etcd_port,
        controller_manager_flags=shlex.split(options.controller_manager_flags),
    )
    binaries.ensure(binaries.LIGHT_TOOLS)
    with steps.step(f"light cluster with {options.nodes} nodes in {options.directory}"):
        kubeconfig = light.start_detached(options.directory, settings)
    print(f"export KUBECONFIG={kubeconfig}")
    return 0


def light_down(options: argparse.Namespace) -> int:
    with steps.step(f"stop the light cluster in {options.directory}"):
        light.stop_detached(options.directory)
    return 0


def build(options: argparse.Namespace) -> int:
    tools = {
        "helm": binaries.HELMS,
        "light": binaries.LIGHT_TOOLS,
        "kind": (*binaries.KIND_TOOLS, *binaries.NODE_TOOLS),
    }
    binaries.ensure(tools[options.mode])
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.e2e.cluster", description=__doc__)
    commands = parser.add_subparsers(required=True)
    creator = commands.add_parser("up")
    creator.set_defaults(command=up)
    creator.add_argument("--stock", action="store_true", help="insist on kind's stock node image: pull it")
    creator.add_argument("--no-images", dest="images", action="store_false", help="the cluster alone")
    remover = commands.add_parser("down")
    remover.set_defaults(command=down)
    remover.add_argument("--keep-engine", action="store_true", help="leave the engine that `up` started running")
    for name, command in (("light-up", light_up), ("light-down", light_down)):
        light_command = commands.add_parser(name)
        light_command.set_defaults(command=command)
        default = binaries.cache_root() / "light"
        light_command.add_argument("--directory", type=_absolute, default=default, help=f"state; default {default}")
        if command is light_up:
            light_command.add_argument("--nodes", type=int, default=2)
            light_command.add_argument("--port", type=int, default=0, help="of the API server; default: a free one")
            light_command.add_argument("--etcd-port", type=int, default=0, help="default: a free one")
            light_command.add_argument(
                "--controller-manager-flags", default="", help="one string, split as a shell does"
            )
    commands.add_parser("images").set_defaults(command=build_images)
    builder = commands.add_parser("build")
    builder.set_defaults(command=build)
    builder.add_argument("mode", choices=("helm", "light", "kind"))
    return parser


def _absolute(text: str) -> Path:
    return Path(text).absolute()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
