#!/usr/bin/env python3
"""Fails if sm_90 machine code has a cp.async with a cache policy whose shared address is partly in a uniform register:
ptxas 13.0 then uses uninitialized registers (see cp_async_16_evict_first in ptx/copy.cuh).

  scripts/check_copies.py BUILD_FOLDER    reads the kernel objects in the folder with cuobjdump, which must be on the PATH"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

WRONG = re.compile(r"LDGSTS\S* \[R\d+\+UR\d+[^\]]*\], desc")
FUNCTION = re.compile(r"Function : (\S+)")


def wrong_copies(path):
    """Returns (number of copies, kernels with a wrong copy) of an object."""
    code = subprocess.run(["cuobjdump", "-sass", str(path)], stdout=subprocess.PIPE, text=True, check=True).stdout
    kernel, num_copies, wrong = "", 0, set()
    for line in code.splitlines():
        if function := FUNCTION.search(line):
            kernel = function[1]
        elif "LDGSTS" in line:
            num_copies += 1
            if WRONG.search(line):
                wrong.add(f"{path.name}: {kernel}")
    return num_copies, wrong


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    objects = sorted(pathlib.Path(sys.argv[1]).rglob("*.cu.o"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = list(pool.map(wrong_copies, objects))
    num_copies, wrong = sum(count for count, _ in found), sorted(set().union(*(kernels for _, kernels in found)))
    if num_copies == 0:
        sys.exit(f"{sys.argv[1]}: expected kernels with cp.async, found none among {len(objects)}")
    if wrong:
        sys.exit("\n  ".join(["kernels with a cp.async that uses uninitialized registers:", *wrong]))
    print(f"copies: {num_copies} in {len(objects)} objects, none with a policy and a uniform register")


if __name__ == "__main__":
    main()
