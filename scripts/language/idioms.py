#!/usr/bin/env python3
"""Counts sentence patterns that must go: idioms.py [ROOT] [--list NAME] [--examples N] [--paths GLOB...]

Comment lines and lines of prose as odd_words.py counts them. A pattern above 0 is work for an editor; --list prints every hit."""
import argparse, collections, fnmatch, os, re, subprocess
PATTERNS = [  # name, regex over the comment's text, case-insensitive unless it starts with ^
 ("begins with Of", r"^Of\b"), ("begins with What/Whose/Who", r"^(What|Whose|Who|Whoever|Whatever)\b"), ("begins with By/As/From/In that lack a verb", r"^(By|As) [^.]*[.:]?$"),
 ("begins with Whether", r"^Whether\b"), ("begins with Where/When", r"^(Where|When)\b"), ("begins with Those/That", r"^(Those|That) "), ("begins with The same", r"^The same\b"),
 ("behind", r"\bbehind\b"), ("beside(s)", r"\bbesides?\b"), ("alone", r"\balone\b"), ("says/tells/said/told", r"\b(says?|said|tells?|told)\b"), ("asks/asked", r"\b(asks?|asked)\b"), ("wants/wanted", r"\b(wants?|wanted)\b"),
 ("who/whose/whoever", r"\b(who|whose|whoever)\b"), ("nobody/somebody", r"\b(nobody|somebody|anybody|everybody)\b"), ("stands/stood", r"\b(stands?|stood)\b"), ("lies/lie", r"\b(lies|lie)\b"),
 ("takes/take", r"\b(takes?)\b"), ("gives/give", r"\b(gives?)\b"), ("comes/came", r"\b(comes?|came)\b"), ("goes/go on", r"\b(goes|go) (on|through|by|to|up|down)\b"), ("knows/know", r"\b(knows?|known)\b"), ("so many/as many", r"\b(so|as) many\b"), ("so much/far", r"\b(so|as) (much|far)\b"),
 ("in the place/stead of", r"\bin (the )?(place|stead) of\b"), ("of its own", r"\bof (its|their|his|one's) own\b"), ("there is/are", r"\bthere (is|are)\b"), ("lone", r"\blone\b"), ("at a time/at once", r"\bat once\b"), ("meanwhile/anew", r"\b(meanwhile|anew)\b"), ("but for", r"\bbut (for|that)\b"), ("is to be/has to", r"\b(is|are) to\b"), ("may/might + will", r"\bmay\b"), ("ends/end of a thing's life", r"\bhas ended\b|\bends with\b"), ("codes (quantized values)", r"\bcodes\b"), ("widen", r"\bwiden(s|ed|ing)?\b"), ("norm as a verb", r"\bnorms (x|its|the|q|each)\b|\bnormed\b"),
 ("number for value", r"\bnumbers?\b"), ("refuse/refusal", r"\brefus(e|es|ed|al|als)\b"), ("heed/heal/forget/remember", r"\b(heeds?|heals?|forgets?|forgotten|remembers?)\b"), ("turns (rotation, sequence)", r"\bturns?\b"), ("lets go/let be", r"\blets? (go|be)\b"), ("is there (predicate)", r"\b(is|are) there[.,;:]"), ("semicolon chain", r";.*;"),
]
DIRS = ["src", "python", "scripts", "examples", "benchmarks", "tests", "docs", "README.md", "cmake", ".ci"]

def lines(root, globs):
    files = subprocess.run(["git", "-C", root, "ls-files", *DIRS], capture_output=True, text=True).stdout.split()
    for f in files:
        if "/goldens/" in f or "/data/" in f or not (f.endswith((".h", ".cc", ".cu", ".cuh", ".py", ".sh", ".cpp", ".md", ".in", ".cmake", "CMakeLists.txt")) or f == ".ci/run"): continue
        if globs and not any(fnmatch.fnmatch(f, g) for g in globs): continue
        try: text = open(os.path.join(root, f), errors="replace").read()
        except OSError: continue
        fenced = False
        in_doc = False
        first = True  # first line of a comment block
        for n, line in enumerate(text.split("\n"), 1):
            if f.endswith(".md"):
                if line.startswith("```"): fenced = not fenced; continue
                if fenced or not line.strip() or re.match(r"[`#\s|]", line) and not line.startswith("|"): first = True; continue
                yield f, n, line.strip(), first or not prev_end; first, prev_end = False, False
                prev_end = not line.rstrip().endswith((".", ":"))
                continue
            c = re.search(r"(?://|(?<!\S)#(?!include|pragma|if|end|def|el|!|undef|error|line))\s?(.*)", line)
            if not c: first = True; continue
            whole = re.match(r"\s*(//|#)", line) is not None
            yield f, n, c.group(1).strip(), first or not whole
            first = not whole

def main():
    a = argparse.ArgumentParser(); a.add_argument("root", nargs="?", default="."); a.add_argument("--list"); a.add_argument("--examples", type=int, default=0); a.add_argument("--paths", nargs="*", default=[])
    a = a.parse_args()
    count, ex, total = collections.Counter(), collections.defaultdict(list), 0
    compiled = [(n, re.compile(p, 0 if p.startswith("^") else re.I)) for n, p in PATTERNS]
    for f, n, text, begins in lines(a.root, a.paths):
        if not text: continue
        total += 1
        for name, rx in compiled:
            if rx.pattern.startswith("^") and not begins: continue
            if rx.search(text):
                count[name] += 1; ex[name].append((f, n, text))
    if a.list:
        for f, n, t in ex[a.list]: print(f"{f}:{n}: {t}")
        return
    print(f"{total} comment lines and lines of prose")
    for name, _ in PATTERNS:
        print(f"  {count[name]:6}  {1000 * count[name] / max(total, 1):6.1f} per 1,000  {name}")
        step = max(1, len(ex[name]) // (a.examples + 1)) if a.examples else 1
        for f, n, t in ex[name][step::step][:a.examples]: print(f"            {f}:{n}: {t[:150]}")
main()
