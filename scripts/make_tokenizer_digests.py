#!/usr/bin/env python3
"""Writes digests of the `tokenizers` library's results for 2,000 texts with every layout of tests/data/tokenizers.

Needs `pip install tokenizers` (written with 0.23.3) and Python 3.11 or later. The output depends only on this file,
make_tokenizer_goldens.py, the layouts and the library.

  many_texts.jsonl   one text per line: a string, {"hex": "..."} for bytes that may not be UTF-8, or
                     {"runs": [[string, count], ...]}
  LAYOUT/many.txt    one line per text: CRC-32 of the ids (little-endian 32-bit, without special tokens), and of the
                     decoded text if it differs from many_texts.jsonl; or "-" if the library's character tables are too
                     old

  --show LAYOUT N    prints the text of line N (from 1), its ids and the decoded text, instead of writing
"""
import argparse
import json
import random
import struct
import unicodedata
import zlib
from pathlib import Path

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from make_tokenizer_goldens import BLOCKS, CORPUS, EDGE_TEXTS, LAYOUTS, is_settled, write_lines

NUM_TEXTS = 2000

MORE_BLOCKS = [
    (0xA80, 0xAFF), (0xB00, 0xB7F), (0xC00, 0xC7F), (0xC80, 0xCFF), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE80, 0xEFF), (0xF00, 0xFFF), (0x1000, 0x109F),
    (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1400, 0x167F), (0x16A0, 0x16FF), (0x1800, 0x18AF), (0x1C90, 0x1CBF), (0x2C80, 0x2CFF), (0x2D30, 0x2D7F), (0x3100, 0x312F), (0x3130, 0x318F),
    (0xA000, 0xA48F), (0xA640, 0xA69F), (0xA980, 0xA9DF), (0xAB70, 0xABBF), (0xFB50, 0xFDFF), (0x10300, 0x1032F), (0x10400, 0x1044F), (0x12000, 0x123FF), (0x1E900, 0x1E95F), (0x1F100, 0x1F1FF),
]  # fmt: skip

# Parts of code: words, then separators.
CODE_WORDS = """
def class return import from if else elif for while in not None True self lambda yield async await with as try except
int const auto std::vector template<class T> namespace public: virtual override nullptr sizeof(x) #include <map> #define
fn let mut impl match Some(x) Ok(()) &str Vec<u8> => -> :: func chan interface{} := var function === !== ?. `${x}` null
SELECT FROM WHERE JOIN ON NULL; \\frac{a}{b} \\begin{align} <div> </div> href="#" {"key": [1.0, -2e3]} // /* */ # -- x1 i++
getHTTPResponseCode kMaxValue snake_case_name __init__ _private CONSTANT_2 camelCase 0xDEADBEEF 0b101 1_000_000 3.14f
""".split()
CODE_BREAKS = [" "] * 8 + ["\n    ", "\n        ", "\n\t\t", "\n\n", "\r\n", "(", ")", ", ", ";\n", " = ", ".", "[", "]", "{\n", "}\n", "  "]

EMOJI = ["😀", "🤖", "👍", "👩", "👨", "👧", "🚀", "❤", "☺", "🏳", "🏴", "🌈", "☠", "✊", "🧑", "💻", "🎉", "⌚", "⛔", "0", "#"]
EMOJI_JOINTS = ["", "", "\u200d", "\ufe0f", "\ufe0e", "\U0001f3fb", "\U0001f3ff", "\u20e3", " ", "\U0001f1e9", "\U0001f1ea", "\U000e0067\U000e007f"]
MARKS = ["\u0300", "\u0301", "\u0308", "\u0323", "\u0327", "\u05b8", "\u064e", "\u093c", "\u0e34", "\u3099", "\u20dd"]


NFKC, STRIP_ACCENTS = normalizers.NFKC(), normalizers.StripAccents()


def is_known(char):
    """Returns true if the library, whose normalization tables are those of Unicode 9, classifies the character correctly."""
    is_mark = unicodedata.category(char).startswith("M")
    return (
        is_settled(char)
        and NFKC.normalize_str(char) == unicodedata.normalize("NFKC", char)
        and (STRIP_ACCENTS.normalize_str(char) == "") == is_mark
    )


def words(rng):
    pieces = sum((line.split(" ") for line in CORPUS), []) + [t for t in EDGE_TEXTS if 0 < len(t) < 12]
    spaces = [" "] * 10 + ["", "", "  ", "\n", "\n\n", "\t", "   ", " \n", "\u00a0"]
    return "".join(rng.choice(pieces) + rng.choice(spaces) for _ in range(rng.randint(2, 20)))


def scripts(rng):
    blocks = rng.sample(BLOCKS + MORE_BLOCKS, rng.randint(1, 4)) + [(0x20, 0x20)]
    chars = (chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(3, 50)))
    return "".join(c for c in chars if is_known(c))


def code(rng):
    return "".join(rng.choice(CODE_WORDS) + rng.choice(CODE_BREAKS) for _ in range(rng.randint(2, 25)))


def emoji(rng):
    return "".join(rng.choice(EMOJI) + rng.choice(EMOJI_JOINTS) for _ in range(rng.randint(1, 14)))


def long_runs(rng):
    units = [" ", "\n", "\t", "a", "ab", "the", "0", "12", "=", "-", "é", "中", "😀", "\u0301", " x", "\r\n", "\u00a0", "▁", "Ġ", "<s>", "\x00"]
    return {"runs": [[rng.choice(units), rng.choice([1, 2, 7, 30, 200, 1000])] for _ in range(rng.randint(1, 4))]}


def random_bytes(rng):
    pools = [list(range(256)), [rng.randint(0, 255) for _ in range(8)] + list("aé中😀 ".encode()), list(range(0x70, 0xF5))]
    while True:
        pool = rng.choice(pools)
        data = bytes(rng.choice(pool) for _ in range(rng.randint(1, 48)))
        if all(is_known(c) for c in data.decode(errors="replace")):
            return {"hex": data.hex()}


def corpus_cuts(rng):
    text = rng.choice("\n ").join(rng.sample(CORPUS, rng.randint(1, 5)))
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, 200)]


def marks(rng):
    bases = "aeiouAEIOUnsS" + "가각ᄀ" + "かカハ" + "ק" + "क" + "Ωﬁ" + " "
    return "".join(rng.choice(bases) + "".join(rng.choices(MARKS, k=rng.randint(0, 3))) for _ in range(rng.randint(1, 16)))


KINDS = [words, scripts, code, emoji, long_runs, random_bytes, corpus_cuts, marks, scripts, random_bytes]


def spelled_out(text):
    """Returns an entry of many_texts.jsonl as the string that is passed to the library."""
    if isinstance(text, str):
        return text
    if "hex" in text:
        return bytes.fromhex(text["hex"]).decode(errors="replace")
    return "".join(unit * count for unit, count in text["runs"])


def crc(data):
    return f"{zlib.crc32(data):08x}"


BERT_WORDS = pre_tokenizers.BertPreTokenizer()
BERT_ACCENTS = normalizers.BertNormalizer(
    clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
)


def is_newer(char):
    """Returns true if BERT's parts of the library, whose tables are older than Unicode 14, misclassify the character."""
    category = unicodedata.category(char)
    parts = len(BERT_WORDS.pre_tokenize_str(f"a{char}b"))
    stripped = BERT_ACCENTS.normalize_str(f"a{char}") == "a"
    return ord(char) > 127 and ((parts == 3) != (category[0] == "P") or stripped != (category == "Mn"))


def digest(tokenizer, text):
    if "BertPreTokenizer" in str(tokenizer.pre_tokenizer) and any(map(is_newer, set(spelled_out(text)))):
        return "-"
    ids = tokenizer.encode(spelled_out(text), add_special_tokens=False).ids
    decoded = tokenizer.decode(ids, skip_special_tokens=True)
    of_ids = crc(struct.pack(f"<{len(ids)}i", *ids))
    same = decoded == spelled_out(text) and not (isinstance(text, dict) and "hex" in text)
    return of_ids if same else f"{of_ids} {crc(decoded.encode())}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(__file__).parent.parent / "tests/data/tokenizers")
    parser.add_argument("--texts", type=int, default=NUM_TEXTS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", nargs=2, metavar=("LAYOUT", "N"))
    args = parser.parse_args()

    if args.show:
        layout, line = args.show
        text = spelled_out(json.loads((args.data / "many_texts.jsonl").read_text().split("\n")[int(line) - 1]))
        tokenizer = Tokenizer.from_file(str(args.data / layout / "tokenizer.json"))
        encoded = tokenizer.encode(text, add_special_tokens=False)
        print(ascii(text), encoded.ids, encoded.tokens, ascii(tokenizer.decode(encoded.ids)), sep="\n")
        return

    rng = random.Random(args.seed)
    texts = [KINDS[i % len(KINDS)](rng) for i in range(args.texts)]
    write_lines(args.data / "many_texts.jsonl", texts)
    for layout in (layout.__name__ for layout in LAYOUTS):
        tokenizer = Tokenizer.from_file(str(args.data / layout / "tokenizer.json"))
        lines = [digest(tokenizer, text) for text in texts]
        (args.data / layout / "many.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
