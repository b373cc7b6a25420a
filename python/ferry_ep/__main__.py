"""`python -m ferry_ep ...` is the `ferry` command."""

from __future__ import annotations

import os
import pathlib
import shutil
import sys


def find_program() -> str:
    """The program inside this package, else the one on PATH."""
    inside = pathlib.Path(__file__).parent / "bin" / "ferry"
    if inside.is_file():
        return str(inside)
    own = os.path.realpath(sys.argv[0])
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        found = shutil.which("ferry", path=folder)
        # Not this package's own entry point once more.
        if found and os.path.realpath(found) != own and _is_elf(found):
            return found
    return ""


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def main() -> None:
    program = find_program()
    if not program:
        print("ferry: this ferry_ep was built without the ferry program and none is on PATH; try: "
              "./ferry-quickstart in a checkout, which leaves it at build/bin/ferry", file=sys.stderr)
        sys.exit(3)
    os.execv(program, ["ferry", *sys.argv[1:]])


if __name__ == "__main__":
    main()
