"""Runs a Python program, and its child processes, with attend's modules as sgl_kernel and flashinfer:

    python -m attend.sgl_kernel [-m PACKAGE | PROGRAM.py | -c TEXT] ARGUMENTS...

It puts the folder attend/standins first on PYTHONPATH, which contains packages with these names that import attend.
"""

import os
import pathlib
import sys

REPLACEMENTS = pathlib.Path(__file__).resolve().parent.parent / "standins"


def environment(variables):
    """Returns `variables` with the folder first on PYTHONPATH."""
    rest = variables.get("PYTHONPATH")
    return {**variables, "PYTHONPATH": os.pathsep.join([str(REPLACEMENTS), *([rest] if rest else [])])}


def main(arguments):
    if not arguments:
        sys.exit("usage: python -m attend.sgl_kernel [-m PACKAGE | PROGRAM.py | -c TEXT] ARGUMENTS...")
    os.execve(sys.executable, [sys.executable, *arguments], environment(dict(os.environ)))


if __name__ == "__main__":
    main(sys.argv[1:])
