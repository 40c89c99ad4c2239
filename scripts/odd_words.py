#!/usr/bin/env python3
"""Checks that names and prose use the field's English (docs/glossary.md, CONTRIBUTING.md).

  odd_words.py [ROOT] [--most N] [--limit]      run in the project's root; --limit: exit code 1 on a violation
  odd_words.py --list PATH...                   prints each line of these files and folders that contains an idiom

scripts/field.txt lists words of at least two of thirteen public repositories of the field. A word of a tree that is neither
there, nor in the first column of docs/glossary.md or its list of names, nor an instruction (NAMES), is listed: either it has
an established equivalent, or it needs a row in the glossary. Idioms are counted per 1,000 comment lines and lines of prose,
next to the highest rate of five C++ repositories of the field; --limit allows three times that rate, at most MAX_WORDS
unknown words that occur five times or more, and no British spelling."""

import argparse
import collections
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
FOLDERS = ["src", "python", "scripts", "examples", "benchmarks", "tests", "docs", "README.md", "CONTRIBUTING.md"]
SUFFIXES = (".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cpp", ".md")
MAX_WORDS = 150
SEGMENT = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+")
# Raw strings first: their quotes do not pair.
RAW_STRING = re.compile(r'R"(?P<d>[^(\s"]{0,16})\((?:.|\n)*?\)(?P=d)"')
STRING = re.compile(r'"(\\.|[^"\\\n])*"')
# Instructions, intrinsics and system calls: names of others.
NAMES = re.compile(
    r"(?:loadu|storeu|castps|castsi|castpd|unpack(?:lo|hi)|permutex(?:var)?|setr|maskz|cvt\w*|slli|srli|fmadd|setzero|blendv|unord"
    r"|vdpbf|ldcg|ldcs|fround|subspan|constinit|countr|nextafter|erfc|rusage|setrlimit|sendall|mktemp|pipefail|esac|sigbus"
    r"|importorskip|swapaxes|ascontiguousarray|partialmethod|unicodedata|streq|csignal|rethrow|llama|attend|gflop|tojson|emoji)$")
# Name: pattern over the comment's text, highest rate of five C++ repositories per 1,000 lines.
IDIOMS = {
    "begins with Of": (r"^(//|#)?\s*Of ", 0.1),
    "begins with What/Whose/Who": (r"^(//|#)?\s*(What|Whose|Who) ", 0.8),
    "behind": (r"\bbehind\b", 0.3),
    "beside(s)": (r"\bbesides?\b", 0.1),
    "alone": (r"\balone\b", 0.7),
    "says/said/tells/told": (r"\b(says?|said|tells?|told)\b", 1.2),
    "asks/asked": (r"\b(asks?|asked)\b", 0.6),
    "comes/came": (r"\b(comes|came)\b", 1.0),
    "who(se)": (r"\bwho(se)?\b", 1.2),
    "so/as many": (r"\b(so|as) many\b", 0.5),
    "in the place/stead of": (r"\bin (the )?(place|stead) of\b", 0.3),
    "nobody/somebody": (r"\b(nobody|somebody|everybody)\b", 0.1),
    "stands/stood": (r"\b(stands?|stood)\b", 0.4),
    "lone": (r"\blone\b", 0.05),
}
BRITISH = re.compile(
    r"(?:(?:un|de|re)?(?:quantis|normalis|optimis|initialis|serialis|synchronis|specialis|vectoris|recognis|parallelis|finalis)"
    r"(?:e|ed|es|er|ing|ation|ations)|neighbour(?:s|ing)?|colour(?:s|ed)?|behaviour|honour(?:s|ed)?|favour|centred?|labelled"
    r"|modelled|signalled|grey|artefacts?|programme|maths|spelt|learnt|whilst)$")


def known_words() -> set[str]:
    words = set(open(os.path.join(HERE, "field.txt")).read().split())
    if not os.path.exists("docs/glossary.md"):
        return words
    for line in open("docs/glossary.md"):
        # Terms, not their definitions: a definition is written in words that are known already.
        text = line.split("|")[1] if line.startswith("|") else line if "not terms" in line or not line.startswith("#") else ""
        words |= {w.lower() for w in SEGMENT.findall(text)}
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", nargs="?", default=".")
    parser.add_argument("--most", type=int, default=60)
    parser.add_argument("--limit", action="store_true")
    parser.add_argument("--list", nargs="+", default=[], metavar="PATH")
    arguments = parser.parse_args()
    os.chdir(arguments.root)
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    files = [f for f in listed if f.endswith(SUFFIXES) and "/goldens/" not in f and "/data/" not in f and os.path.isfile(f)
             and f != "scripts/odd_words.py"]
    known = known_words()
    odd, first, hits, british, lines = collections.Counter(), {}, collections.Counter(), [], 0
    for path in files:
        text = open(path, errors="replace").read()
        # Line breaks of raw strings stay, so that line numbers do.
        text = RAW_STRING.sub(lambda match: "\n" * match[0].count("\n"), text)
        for number, line in enumerate(text.split("\n"), 1):
            for word in map(str.lower, SEGMENT.findall(line)):
                if BRITISH.match(word):
                    british.append(f"{path}:{number}: {word}")
            bare = line if path.endswith(".sh") else STRING.sub("", line)
            for word in map(str.lower, SEGMENT.findall(bare)):
                if len(word) >= 4 and word not in known and not NAMES.match(word):
                    odd[word] += 1
                    first.setdefault(word, f"{path}:{number}")
            prose = re.match(r"(?![`|#\s]).+", line) if path.endswith(".md") else re.search(r"(//|(?<!\S)#)\s?.*", line)
            if not prose or line.startswith(("#include", "#pragma", "#if", "#end", "#def", "#el", "#!")):
                continue
            lines += 1
            for name, (pattern, _) in IDIOMS.items():
                if re.search(pattern, prose[0], 0 if pattern.startswith("^") else re.IGNORECASE):
                    hits[name] += 1
                    if path.startswith(tuple(arguments.list)):
                        print(f"{path}:{number}: [{name}] {prose[0]}")
    if arguments.list:
        return 0
    frequent = sum(count >= 5 for count in odd.values())
    print(f"words: {len(files)} files, {lines} comment lines, {len(odd)} unknown words, {frequent} of them five times or more")
    problems = []
    for name, (_, highest) in IDIOMS.items():
        rate = 1000 * hits[name] / max(lines, 1)
        print(f"  {name:28} {rate:6.1f} per 1,000 (field: at most {highest})")
        if rate > 3 * highest:
            problems.append(f"idiom '{name}': {rate:.1f} per 1,000 comment lines; at most {3 * highest:.2f}")
    for word, count in odd.most_common(arguments.most):
        print(f"  {count:5} {word:24} {first[word]}")
    if frequent >= MAX_WORDS:
        problems.append(f"{frequent} unknown words occur five times or more; fewer than {MAX_WORDS}, or rows in docs/glossary.md")
    problems += [f"{place}: American spelling" for place in british[:20]]
    print("\n".join(problems))
    return 1 if arguments.limit and problems else 0


if __name__ == "__main__":
    sys.exit(main())
