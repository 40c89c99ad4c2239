#!/usr/bin/env python3
"""Compares README.md's first transcript with the output of its command.

  scripts/check_readme.py ATTEND [--write]      --write: replaces the transcript by the command's output

The transcript shows the first log lines and the answer; "..." replaces other log lines. The CPU's name, the number of
threads and the rounding of activations depend on the machine and are not compared."""

import difflib
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
TRANSCRIPT = re.compile(r"(?m)^```\n\$ (attend .*)\n((?:.*\n)*?)```$")
SHOWN = re.compile(r"info: (\w+ForCausalLM on|attention backend:|KV pool: )")
MACHINE = re.compile(r"on .+, \d+ threads?, activations in \w+(, rounded before \w+ weights)?")


def transcript(command: str, attend: str) -> list[str]:
    """Runs the command, and returns its output with "..." for runs of lines that the transcript does not show."""
    run = subprocess.run([attend, *shlex.split(command)[1:]], cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if run.returncode != 0:
        sys.exit(f"check_readme: {command}: exit code {run.returncode}\n{run.stdout}")
    lines = []
    for line in run.stdout.splitlines():
        if not line.startswith("info: ") or SHOWN.match(line):
            lines.append(line)
        elif lines[-1:] != ["..."]:
            lines.append("...")
    return lines


def main() -> None:
    text = README.read_text()
    found = TRANSCRIPT.search(text)
    if len(sys.argv) < 2 or found is None:
        sys.exit("check_readme: expected the path of attend, and a transcript in README.md that starts with $ attend")
    new = transcript(found[1], str(pathlib.Path(sys.argv[1]).resolve()))
    if sys.argv[2:] == ["--write"]:
        README.write_text(text[: found.start(2)] + "\n".join(new) + "\n" + text[found.end(2) :])
        return
    masked = [[MACHINE.sub("on this machine", line) for line in lines] for lines in (found[2].splitlines(), new)]
    if masked[0] != masked[1]:
        print(*difflib.unified_diff(*masked, "README.md", "output", lineterm=""), sep="\n")
        sys.exit("check_readme: the transcript is outdated: scripts/check_readme.py build/release/attend --write")
    print(f"readme: {len(new)} lines of the transcript match")


if __name__ == "__main__":
    main()
