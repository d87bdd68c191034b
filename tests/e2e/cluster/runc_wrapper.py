"""runc, asked for no more capabilities than the kernel grants.

Installed as the engine's runtime where CAP_SYS_RESOURCE is missing: takes it out of the bundle's
`config.json` or the process file that the engine hands over, then becomes runc.
"""

import json
import os
import sys

MISSING = "CAP_SYS_RESOURCE"


def files(arguments: list[str]) -> list[str]:
    """The specifications that a command line of runc points to."""
    found = []
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        name, _, attached = option.partition("=")
        if name in ("--bundle", "-b"):
            found.append(f"{attached or value}/config.json")
        elif name in ("--process", "-p"):
            found.append(attached or value)
    return [path for path in found if os.path.isfile(path)]


def lower(path: str) -> None:
    """Rewrites one specification in place, at once or not at all."""
    with open(path) as source:
        specification = json.load(source)
    process = specification.get("process", specification)
    for granted in (process.get("capabilities") or {}).values():
        if granted and MISSING in granted:
            granted.remove(MISSING)
    with open(f"{path}.lowered", "w") as target:
        json.dump(specification, target)
    os.chmod(f"{path}.lowered", os.stat(path).st_mode & 0o777)
    os.replace(f"{path}.lowered", path)


def main() -> None:
    for path in files(sys.argv[1:]):
        lower(path)
    os.execvp("runc", ["runc", *sys.argv[1:]])


if __name__ == "__main__":
    main()
