#!/usr/bin/env python3
"""Writes LAYOUT/stream.jsonl for every layout of tests/data/tokenizers: the text of every prefix of an answer, as
transformers decodes it, and the part of it that may be streamed.

Needs `pip install transformers tokenizers` (written with 5.24.0 and 0.23.3). The output depends only on this file, the
layouts and the libraries. One case per line:

  "prompt", "new"   ids of the prompt and of the answer
  "skip"            skip_special_tokens; true if missing
  "chunks"          one text per new id. The first n texts together are the longest text that begins the answer whichever
                    ids follow the first n. Byte tokens have their text when another token follows
  "rest"            one text per new id: decode(prompt + new[:n]) without decode(prompt), without the first n chunks. No
                    entry if all are empty

"Without": without the longest common prefix, since the prompt may end within a character.
"""
import argparse
import itertools
import os
import random
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from make_tokenizer_goldens import LAYOUTS, write_lines

MAX_PROMPT, MAX_NEW = 24, 16

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "  two spaces,  four    spaces \n\n lines\t\ttabs ",
    "def f(x):\n    if x >= 4:\n        return x->data()[3]",
    "Don't , they 're I'll we've ( a ) \" b \" e . g . !",
    "a😀b 👩🏿‍🚀 in space 🤖🤖",
    "敏捷的狐狸，中文english混合１２3",
    "naïve café Zoë, Straße; Zażółć gęślą jaźń",
    "Быстрая лиса και हिन्दी क्षत्रिय",
    "안녕하세요 สวัสดีชาวโลก 𒀀 ꙮ unknown",
    "<|im_start|>user\nHi<|im_end|>\n<s> a </s> b [SEP] <think>\nhm\n</think>\n\n<tool_call>",
]


def common(a, b):
    return os.path.commonprefix([a, b])


def without(text, prefix):
    return text[len(common(text, prefix)) :]


def find_following(tokenizer):
    """Returns sequences that may follow: every id, and the ends of characters of several bytes."""
    # Three continuation bytes that complete the characters of every first byte, in byte-level spelling and as byte tokens.
    spellings = (chr(290), chr(306), chr(322)), ("<0x80>", "<0x90>", "<0xA0>")
    ids = [[tokenizer.token_to_id(token) for token in tokens] for tokens in spellings]
    bytes_ = next((found for found in ids if None not in found), [])
    ends = [list(end) for n in (2, 3) for end in itertools.product(bytes_, repeat=n)]
    return [[i] for i in range(tokenizer.get_vocab_size())] + ends


def make_case(tokenizer, fast, following, prompt, new, skip):
    special_ids = {i for i, token in tokenizer.get_added_tokens_decoder().items() if token.special}

    def is_byte(i):
        return tokenizer.id_to_token(i).startswith("<0x")

    def decode(ids):
        return tokenizer.decode(ids, skip_special_tokens=skip)

    def settled(ids):
        """Returns the part of decode(ids) that no further ids change."""
        while ids and (is_byte(ids[-1]) or skip and ids[-1] in special_ids):
            ids = ids[:-1]
        text = decode(ids)
        for further in following:
            text = common(text, decode(ids + further))
        return text

    before = decode(prompt)
    sent, chunks, rest = "", [], []
    for n in range(1, len(new) + 1):
        ids = prompt + new[:n]
        whole = decode(ids)
        assert whole == fast.decode(ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False)
        text = without(settled(ids), before)
        assert text.startswith(sent), (ids, sent, text)
        chunks.append(text[len(sent) :])
        sent = text
        text = without(whole, before)
        assert text.startswith(sent), (ids, sent, text)
        rest.append(text[len(sent) :])
    case = {"prompt": prompt, "new": new, "chunks": chunks}
    if not skip:
        case["skip"] = False
    if any(rest):
        case["rest"] = rest
    return case


def cases(tokenizer, fast, rng):
    vocab = tokenizer.get_vocab_size()
    following = find_following(tokenizer)
    byte_tokens = [i for i in range(vocab) if tokenizer.id_to_token(i).startswith("<0x")]
    for i in range(2 * len(TEXTS)):
        ids = tokenizer.encode(TEXTS[i // 2]).ids
        split = rng.randint(i % 2, max(len(ids) - 4, 1))
        yield make_case(tokenizer, fast, following, ids[:split][-MAX_PROMPT:], ids[split:][:MAX_NEW], i % 4 != 0)
    for i in range(6):
        pool = byte_tokens if byte_tokens and i % 2 == 0 else range(min(vocab, 300 + 400 * (i % 3)))
        ids = [rng.choice(pool) if rng.random() < 0.85 else rng.randrange(vocab) for _ in range(20)]
        split = rng.randint(0, 8)
        yield make_case(tokenizer, fast, following, ids[:split], ids[split:], i % 3 != 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests/data/tokenizers")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    for layout in LAYOUTS:
        folder = args.out / layout.__name__
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
        write_lines(folder / "stream.jsonl", cases(tokenizer, fast, random.Random(args.seed)))
        print(layout.__name__)


if __name__ == "__main__":
    main()
