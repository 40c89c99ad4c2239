"""Runs SGLang's benchmark client (the compiled one of the wheel `sglang`) without the packages that sglang
requires.

    python tests/clients/sglang_bench.py --backend sglang-oai --base-url http://127.0.0.1:30000 ...
"""

import importlib.util
import pathlib
import sys


def client():
    found = importlib.util.find_spec("sglang")
    if found is None:
        return None
    folder = pathlib.Path(found.submodule_search_locations[0])
    path = next(folder.glob("srt/rust_extensions/_bench*.so"))
    spec = importlib.util.spec_from_file_location("_bench", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    client().run_argv(["sglang-bench", *sys.argv[1:]])
