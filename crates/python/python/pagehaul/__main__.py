"""Runs the programs of pagehaul: `python -m pagehaul info dump`, `python -m pagehaul fleet extract *.dump --to tables`.

They are in the wheel, so that workers of Spark or another scheduler need no other package.
"""

from __future__ import annotations

import os
import sys
from typing import List, NoReturn

from ._programs import path_of


def run(program: str, arguments: List[str]) -> NoReturn:
    """Becomes the program, which runs functions of `pagehaul.fleet.table` with this Python."""
    os.environ.setdefault("PAGEHAUL_PYTHON", sys.executable)
    try:
        os.execv(path_of(program), [program, *arguments])
    except FileNotFoundError as why:
        sys.exit(f"pagehaul: {why}")


def main() -> NoReturn:
    """Runs pagehaul, or pagehaul-fleet if the first argument is `fleet`."""
    arguments = sys.argv[1:]
    if arguments[:1] == ["fleet"]:
        run("pagehaul-fleet", arguments[1:])
    run("pagehaul", arguments)


def fleet() -> NoReturn:
    """Runs pagehaul-fleet."""
    run("pagehaul-fleet", sys.argv[1:])


if __name__ == "__main__":
    main()
