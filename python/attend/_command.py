"""The command attend, a program in this package."""

import os
import pathlib
import sys
from typing import NoReturn


def main() -> NoReturn:
    program = pathlib.Path(__file__).parent / "bin" / "attend"
    if not program.exists():
        sys.exit(f"attend: {program} is missing: the package was built with an attend that was installed without its command")
    os.execv(program, ["attend", *sys.argv[1:]])
