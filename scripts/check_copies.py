#!/usr/bin/env python3
"""Fails where the machine code of sm_90 has a cp.async by a cache policy whose shared address is partly in a uniform register:
ptxas 13.0 then names registers that nobody wrote (cp_async_16_evict_first of ptx/copy.cuh says more).

  scripts/check_copies.py BUILD_FOLDER    reads the objects of kernels below it with cuobjdump, which has to be on the PATH"""

import concurrent.futures
import pathlib
import re
import subprocess
import sys

WRONG = re.compile(r"LDGSTS\S* \[R\d+\+UR\d+[^\]]*\], desc")
FUNCTION = re.compile(r"Function : (\S+)")


def wrong_copies(path):
    """(number of copies, kernels with a wrong one) of an object."""
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
        sys.exit(f"{sys.argv[1]}: expected objects of kernels that copy, found none among {len(objects)}")
    if wrong:
        sys.exit("\n  ".join(["kernels whose cp.async names registers that nobody wrote:", *wrong]))
    print(f"copies: none by policy through a uniform register, of {num_copies} in {len(objects)} objects")


if __name__ == "__main__":
    main()
