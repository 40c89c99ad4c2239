#!/usr/bin/env python3
"""Runs the attend command on randomly changed configs, tokenizers, prompts and flags.

    fuzz_commands.py ATTEND SECONDS [--seed N] [NAME...]      NAME: config, tokenizer, prompts, flags

Every run must end by itself within seconds and within a memory limit, with exit code 0 or 2, and print a message for 2.
A failing run is printed with its command, and its files are kept.
"""

import argparse
import concurrent.futures
import copy
import itertools
import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY = ROOT / "models/attend-tiny"
# One model of each architecture, without a tokenizer.
GOLDENS = sorted(path.parent for path in (ROOT / "tests/goldens").glob("*/config.json"))
MAX_SECONDS = 30
MAX_BYTES = 6 << 30
NUMBERS = [0, -1, 1, 2, 3, 64, 2**31 - 1, 2**31, -(2**31), 2**53, 2**64 - 1, 2**64, 0.5, -0.0, 1e-320, 1e308, 1e30]
TEXTS = ["", "a", "\x00", "\x1b[2J", "x" * 3000, "\ud7ff", "float16", "../../..", "null"]


def any_value(rng):
    return rng.choice([rng.choice(NUMBERS), rng.choice(TEXTS), None, True, False, [], {}, [1], {"a": 1}])


def places(value, found=None):
    """Returns every container with the key of one of its values."""
    found = [] if found is None else found
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found.append((value, key))
        if isinstance(item, (dict, list)):
            places(item, found)
    return found


def change(value, rng):
    """Replaces, removes, repeats or wraps one or a few fields of a JSON value."""
    value = copy.deepcopy(value)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        some = places(value)
        if not some:
            return value
        container, key = rng.choice(some)
        action = rng.randrange(5)
        if action == 0:
            container[key] = any_value(rng)
        elif action == 1 and isinstance(container[key], (int, float)) and not isinstance(container[key], bool):
            container[key] = rng.choice([container[key] * rng.choice([-1, 2, 3, 1000]), container[key] + 1])
        elif action == 2:
            del container[key]
        elif action == 3:
            container[key] = [container[key]] * rng.choice([0, 1, 2, 300])
        else:
            for _ in range(rng.choice([1, 20, 100])):
                container[key] = [container[key]]
    return value


def corrupt(raw, rng):
    """Truncates, duplicates, overwrites or extends the bytes of a file."""
    raw = bytearray(raw)
    if not raw:
        return b"\0"
    at = rng.randrange(len(raw) + 1)
    action = rng.randrange(5)
    if action == 0:
        return bytes(raw[:at])
    if action == 1:
        return bytes(raw[:at] + raw[:at])
    if action == 2:
        return bytes(raw) + rng.choice([b"\0", b"\0junk", b"{}", b"\xff", b"\n"])
    if action == 3:
        return bytes(raw[:at] + rng.choice([b"\0", b"[" * 100000, b"\xff\xfe", b'"', b"9" * 400]) + raw[at:])
    for _ in range(rng.choice([1, 3, 30])):
        raw[rng.randrange(len(raw))] = rng.randrange(256)
    return bytes(raw)


def changed_file(raw, rng):
    if rng.random() < 0.25:
        return corrupt(raw, rng)
    return json.dumps(change(json.loads(raw), rng)).encode()


def copy_of_model(model, folder, *without):
    for path in model.iterdir():
        if path.name not in without and not path.is_dir():
            (folder / path.name).symlink_to(path)


def config(folder, rng):
    """Runs every command that reads a config on a changed one."""
    model = TINY if rng.random() < 0.3 else rng.choice(GOLDENS)
    copy_of_model(model, folder, "config.json", "generation_config.json")
    (folder / "config.json").write_bytes(changed_file((model / "config.json").read_bytes(), rng))
    (folder / "prompts").write_text('{"input_ids": [1, 2, 3, 4, 5]}')
    if rng.random() < 0.2:
        (folder / "generation_config.json").write_bytes(changed_file(b'{"eos_token_id": [1, 2], "temperature": 0.5}', rng))
    few = ["--max-total-tokens", "512", "--max-running-requests", "2", "--chunked-prefill-size", "64"]
    return rng.choice(
        [
            ["generate", "--model-path", folder, "--prompts-file", folder / "prompts", "-n", "2", *few],
            ["generate", "--model-path", folder, "--prompts-file", folder / "prompts", "-n", "2", "--load-format", "dummy", *few],
            ["backends", "--model-path", folder],
            ["bench", "model", "--model-path", folder, "--load-format", "dummy", "--num-layers", "1", "--depth", "1048576000"],
        ]
    )


STEPS = {
    "normalizer": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000},
        {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
        {"type": "Prepend", "prepend": "a" * 5000},
        {"type": "NFKD"},
        {"type": "Lowercase"},
    ],
    "pre_tokenizer": [
        {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False},
        {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": False},
        {"type": "Digits", "individual_digits": True},
    ],
    "decoder": [
        {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": "a", "start": 2**64 - 1, "stop": 2**64 - 1},
    ],
}
LISTS = {"normalizer": "normalizers", "pre_tokenizer": "pretokenizers", "decoder": "decoders"}


def tokenizer(folder, rng):
    """Returns a tokenizer whose steps multiply the text, or one with changed fields outside of its long vocabulary."""
    copy_of_model(TINY, folder, "tokenizer.json")
    file = json.loads((TINY / "tokenizer.json").read_text())
    if rng.random() < 0.6:
        field = rng.choice(list(STEPS))
        steps = [rng.choice(STEPS[field]) for _ in range(rng.choice([1, 2, 4, 40, 3000]))]
        file[field] = {"type": "Sequence", LISTS[field]: steps}
    else:
        short = {key: file[key] for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens")}
        file.update(change(short, rng))
    (folder / "tokenizer.json").write_text(json.dumps(file))
    text = rng.choice(["a", "a b" * 1000, "aaaa \u00e9" * 300, "a\u0300\u0301" * 500])
    return ["generate", "--model-path", folder, "-p", text, "-n", "3"]


def prompts(folder, rng):
    lines = [
        rng.choice(
            ["copy: a", '{"prompt": "a"}', '{"input_ids": [1, 2]}', '{"prompt": "a", "answer": "b"}', '["a"]', "[a]", "{", ""]
        )
        for _ in range(rng.randrange(1, 6))
    ]
    raw = rng.choice(["\n", "\r\n"]).join(lines).encode()
    if rng.random() < 0.3:
        raw = b"\n".join(json.dumps(change(json.loads(l), rng)).encode() for l in lines if l.startswith('{"')) or raw
    if rng.random() < 0.3:
        raw = corrupt(raw, rng)
    (folder / "prompts").write_bytes(raw)
    return ["generate", "--model-path", TINY, "--prompts-file", folder / "prompts", "-n", "1", *rng.choice([["--json"], []])]


def known_flags(attend):
    """Returns the flags of a command from its help, and those that have a value."""
    flags = {}
    for command in ("generate", "backends", "bench model", "bench attention"):
        text = subprocess.run([attend, *command.split(), "--help"], capture_output=True, text=True, check=True).stdout
        flags[command] = [
            (line.split()[0].split(",")[0], bool(re.search(r"-\S+ [A-Z]", line)))
            for line in text.splitlines()
            if re.match(r" {2,6}-", line)
        ]
    return flags


def flags(folder, rng, known):
    command = rng.choice(["generate", "generate", "backends"])
    arguments = [*command.split(), "--model-path", TINY] + (["-p", "a", "-n", "2"] if command == "generate" else [])
    values = ["", "0", "-1", "1", "2", "64", "1e9", "99999999999", "abc", "auto", "cpu", "float32", "fp8", "torch_native",
              "\x1b[2J", "x" * 5000, "1,2", ",", "/dev/zero", str(folder), "--json", "dummy", "nan", "0.5"]
    for _ in range(rng.randrange(1, 5)):
        flag, takes_value = rng.choice(known[command])
        if flag in ("--help", "-h", "--model-path"):
            continue
        arguments += [flag, rng.choice(values)] if takes_value and rng.random() < 0.95 else [flag]
    if rng.random() < 0.1:
        rng.shuffle(arguments)
    return arguments


def limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))


def run(command, folder):
    """Returns the problem of a run in `folder`, since flags such as --profile write files, or None."""
    try:
        ran = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=MAX_SECONDS, preexec_fn=limit_memory
        )
    except subprocess.TimeoutExpired:
        return f"did not end within {MAX_SECONDS} s"
    if ran.returncode not in (0, 2):
        return f"exit code {ran.returncode}: {ran.stderr[-300:]!r}"
    if ran.returncode == 2 and not ran.stderr.startswith(b"attend: ") and b"\nattend: " not in ran.stderr:
        return f"failed without a message: {ran.stderr[-300:]!r}"
    if b"\x1b" in ran.stderr or len(ran.stderr) > 20000:
        return f"stderr: {len(ran.stderr)} bytes: {ran.stderr[:300]!r}"
    return None


def fuzz(name, attend, seconds, seed, known):
    makers = {"config": config, "tokenizer": tokenizer, "prompts": prompts, "flags": lambda f, r: flags(f, r, known)}
    end = time.monotonic() + seconds
    num_runs = num_wrong = 0
    for i in itertools.count():
        if time.monotonic() > end or num_wrong >= 5:
            break
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"attend_fuzz_{name}_"))
        rng = random.Random(f"{name} {seed} {i}")
        try:
            command = [attend, *(str(part) for part in makers[name](folder, rng))]
            command = [part.replace("\0", "") for part in command]
        except UnicodeEncodeError:
            shutil.rmtree(folder)
            continue
        wrong = run(command, folder)
        num_runs += 1
        if wrong:
            num_wrong += 1
            print(f"fuzz {name} (seed {seed}, run {i}): {wrong}\n  {[part[:200] for part in command]}")
        else:
            shutil.rmtree(folder)
    print(f"fuzz {name} through the command: {num_runs} runs, {num_wrong or 'no'} failures")
    return num_wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("attend", type=pathlib.Path)
    parser.add_argument("seconds", type=float)
    parser.add_argument("names", nargs="*", default=["config", "tokenizer", "prompts", "flags"])
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    attend = str(options.attend.resolve())
    os.environ["OMP_NUM_THREADS"] = "1"  # short runs, several concurrently
    known = known_flags(attend)
    # One kind per core. Processes, since the code that runs in a child before the command is not thread-safe.
    with concurrent.futures.ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        fuzzing = [pool.submit(fuzz, name, attend, options.seconds, options.seed, known) for name in options.names]
        sys.exit(any([found.result() for found in fuzzing]))


if __name__ == "__main__":
    main()
