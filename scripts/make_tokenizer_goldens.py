#!/usr/bin/env python3
"""Writes tests/data/tokenizers: small tokenizers in published layouts, and the results of the `tokenizers` library for
some texts.

Needs `pip install tokenizers` (written with 0.23.3). The output depends only on this file and the library.

  texts.jsonl             one JSON string per line: texts for every layout
  LAYOUT/tokenizer.json   a tokenizer, trained on the corpus below
  LAYOUT/golden.jsonl     first line: {"before": [...], "after": [...]}, the ids that add_special_tokens adds.
                          then one case per line:
    "i" or "text"         the line of texts.jsonl, or the text itself; a case without either only decodes
    "ids"                 ids of the text, without special tokens
    "skip", "keep"        decode(ids) with and without skip_special_tokens; if "skip" is missing it equals the text, if
                          "keep" is missing it equals "skip"
"""
import argparse
import json
import math
import os
import random
import unicodedata
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers  # noqa: E402
from tokenizers import pre_tokenizers, processors, trainers  # noqa: E402

SPACE = "\u2581"

CORPUS = """
The engine reads a prompt and writes the next token, one step after another, until it stops.
A page holds sixteen tokens; the table says where each page of a request lives in the pool.
When the pool is full, the youngest request waits and the others go on. It isn't lost, they're all coming back.
She'd said that we'll see what I've got, but you're sure he's right and I'm not.
Numbers like 1, 12, 123, 1234 and 3.14159 or 2024-05-17 come in groups; so do 1,000,000 and 0x7fff.
def attend(query, keys, values, scale=1.0):
    scores = [scale * dot(query, key) for key in keys]
    weights = softmax(scores)
    return sum(w * v for w, v in zip(weights, values))
for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }  // no overflow here
if (x != nullptr && x->size() >= 4) return x->data()[3];
{"role": "user", "content": "What is the answer?", "n": [1, 2, 3], "ok": true, "none": null}
<html><body class="main"><a href="https://example.org/a?b=c&d=e">link</a></body></html>
SELECT name, count(*) FROM tokens WHERE id > 100 GROUP BY name ORDER BY 2 DESC;
Der Käse schmeckt gut, die Straße ist naß, und über allen Gipfeln ist Ruh.
L'été dernier, nous étions à la plage; où est-ce que tu étais? Ça dépend, naïve Zoë.
El niño comió piñas y bebió agua. ¿Qué pasó después? ¡Nada!
Zażółć gęślą jaźń. Příliš žluťoučký kůň úpěl ďábelské ódy. Árvíztűrő tükörfúrógép.
Быстрая лиса прыгает через ленивую собаку. Что это такое? Это токен.
Η γρήγορη αλεπού πηδάει πάνω από το σκυλί. Καλημέρα κόσμε.
השועל המהיר קופץ מעל הכלב העצלן. שלום עולם.
الثعلب السريع يقفز فوق الكلب الكسول. مرحبا بالعالم.
तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है। नमस्ते दुनिया।
敏捷的狐狸跳过了懒惰的狗。你好，世界！今天天气很好，我们去公园吧。
素早い狐がのろまな犬を飛び越える。こんにちは世界。カタカナとひらがな。
빠른 여우가 게으른 개를 뛰어넘는다. 안녕하세요 세계.
สุนัขจิ้งจอกกระโดดข้ามสุนัขขี้เกียจ สวัสดีชาวโลก
Con cáo nhanh nhẹn nhảy qua con chó lười biếng. Xin chào thế giới.
""".strip().split("\n")

# --- layouts ---------------------------------------------------------------------------------------------------------

LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_SPLIT = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK_SPLITS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
]


def train(tokenizer, vocab_size, special_tokens=(), alphabet=(), **options):
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(special_tokens),
        initial_alphabet=list(alphabet),
        show_progress=False,
        **options,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def common_chars(count):
    """Returns the most frequent characters of the corpus. (The trainer's limit_alphabet breaks ties randomly.)"""
    text = "".join(CORPUS).replace(" ", SPACE)
    return sorted(set(text), key=lambda c: (-text.count(c), c))[:count]


def special(content, **flags):
    return AddedToken(content, special=True, normalized=False, **flags)


def byte_level(vocab_size, pre_tokenizer, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(tokenizer, vocab_size, alphabet=pre_tokenizers.ByteLevel.alphabet())


def split_then_bytes(*patterns):
    splits = [pre_tokenizers.Split(Regex(p), behavior="isolated", invert=False) for p in patterns]
    return pre_tokenizers.Sequence(splits + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def template(tokenizer, single, tokens):
    return processors.TemplateProcessing(
        single=single, pair=single + " $B:1", special_tokens=[(t, tokenizer.token_to_id(t)) for t in tokens]
    )


def edit(tokenizer, change):
    """Returns the tokenizer after `change` was applied to its JSON."""
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data)), data


def llama3():
    tokenizer = byte_level(600, split_then_bytes(LLAMA3_SPLIT), ignore_merges=True)

    def add_unmerged_words(data):
        # Words that no merge produces: only ignore_merges finds them.
        for word in ["Ġunmerged", "zebra", "Ġquick", "1234", "ĠÐ¼Ð¸ÑĢ"]:
            data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))

    tokenizer, _ = edit(tokenizer, add_unmerged_words)
    tokenizer.add_special_tokens(
        [
            special(t)
            for t in ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
        ]
    )
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            template(tokenizer, "<|begin_of_text|> $A", ["<|begin_of_text|>"]),
        ]
    )
    return tokenizer, None


def qwen2():
    tokenizer = byte_level(560, split_then_bytes(QWEN2_SPLIT), normalizer=normalizers.NFC())
    tokenizer.add_special_tokens([special(t) for t in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    tokenizer.add_tokens(
        [AddedToken(t, normalized=False) for t in ["<tool_call>", "</tool_call>", "<think>", "</think>"]]
    )

    def old_merges(data):  # as published: merges are "a b"
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]

    return edit(tokenizer, old_merges)


def gpt2():
    tokenizer = byte_level(500, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])

    def as_published(data):  # no type, empty prefix and suffix, merges are "a b"
        model = data["model"]
        del model["type"]
        model["continuing_subword_prefix"] = ""
        model["end_of_word_suffix"] = ""
        model["merges"] = ["#version: 0.2"] + [" ".join(pair) for pair in model["merges"]]

    return edit(tokenizer, as_published)


def roberta():
    tokenizer = byte_level(480, pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True))
    tokenizer.add_special_tokens([special(t) for t in ["<s>", "</s>", "<pad>"]] + [special("<mask>", lstrip=True)])
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", tokenizer.token_to_id("</s>")), ("<s>", tokenizer.token_to_id("<s>"))
    )
    return tokenizer, None


def o200k():
    tokenizer = byte_level(520, split_then_bytes(O200K_SPLIT))
    tokenizer.add_special_tokens([special(t) for t in ["<|start|>", "<|end|>", "<|message|>"]])
    return tokenizer, None


def deepseek():
    tokenizer = byte_level(520, split_then_bytes(*DEEPSEEK_SPLITS))
    tokenizer.add_special_tokens([special(t) for t in ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"]])
    tokenizer.add_tokens([AddedToken(t, normalized=True) for t in ["<｜User｜>", "<｜Assistant｜>"]])
    return tokenizer, None


def sentencepiece(vocab_size, special_tokens, fuse_unk=True):
    """Returns a BPE vocabulary as converted from SentencePiece: special tokens, bytes, pieces."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=fuse_unk, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    bytes_ = [f"<0x{i:02X}>" for i in range(256)]
    # Most characters of the corpus; the others fall back to bytes.
    train(tokenizer, vocab_size, list(special_tokens) + bytes_, alphabet=common_chars(180), limit_alphabet=180)

    def keep_special_tokens(data):  # training adds the bytes as added tokens; in published files they are plain tokens
        data["added_tokens"] = [t for t in data["added_tokens"] if t["content"] in special_tokens]

    return edit(tokenizer, keep_special_tokens)[0]


def sentencepiece_decoder(strip):
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence(steps + ([decoders.Strip(" ", 1, 0)] if strip else []))


def llama2():
    tokenizer = sentencepiece(800, ["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    tokenizer.decoder = sentencepiece_decoder(strip=True)
    tokenizer.post_processor = template(tokenizer, "<s> $A", ["<s>"])

    def no_pre_tokenizer(data):
        data["pre_tokenizer"] = None
        data["model"]["merges"] = [" ".join(pair) for pair in data["model"]["merges"]]

    return edit(tokenizer, no_pre_tokenizer)


def mistral():
    tokenizer = sentencepiece(760, ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="first", split=False)
    tokenizer.decoder = sentencepiece_decoder(strip=True)
    tokenizer.post_processor = template(tokenizer, "<s> $A </s>", ["<s>", "</s>"])
    return tokenizer, None


def gemma():
    tokenizer = sentencepiece(780, ["<pad>", "<eos>", "<bos>", "<unk>"])
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous", invert=False)
    tokenizer.decoder = sentencepiece_decoder(strip=False)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t in ["\n\n", "\n\n\n", "\t", SPACE * 2, SPACE * 4]])
    tokenizer.add_special_tokens([special(t) for t in ["<start_of_turn>", "<end_of_turn>"]])
    tokenizer.post_processor = template(tokenizer, "<bos> $A", ["<bos>"])
    return tokenizer, None


def metaspace():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(r"\s{2,}"), " "), normalizers.Strip(left=False, right=True)]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always", split=True)
    train(tokenizer, 600, ["<unk>", "<s>", "</s>"], alphabet=common_chars(220), limit_alphabet=220)
    tokenizer.post_processor = processors.BertProcessing(("</s>", 2), ("<s>", 1))
    return tokenizer, None


def words():
    """An artificial layout with features that the others lack: unknown characters, unusual added tokens, no decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", fuse_unk=False))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Punctuation("contiguous"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Whitespace(),
            pre_tokenizers.Split(Regex("z+"), behavior="merged_with_next", invert=False),
            pre_tokenizers.Split(Regex("[aeiou]{2}"), behavior="contiguous", invert=True),
        ]
    )
    train(tokenizer, 420, ["[UNK]", "[PAD]"], alphabet="abcdefghijklmnopqrstuvwxyz0123456789", limit_alphabet=36)
    tokenizer.add_tokens(
        [
            AddedToken("Token", single_word=True, normalized=False),
            AddedToken("Übermut", normalized=True),
            AddedToken("page", single_word=True, normalized=True),
            AddedToken("[left]", lstrip=True, normalized=False),
            AddedToken("[right]", rstrip=True, normalized=False),
            AddedToken("[both]", lstrip=True, rstrip=True, normalized=False, special=True),
            AddedToken("[bo", normalized=False),
            AddedToken("th]en", normalized=False),
        ]
    )
    return tokenizer, None


def word_pieces(normalizer, pre_tokenizer, prefix, count):
    """Returns frequent parts of the corpus' words. (The library's trainer numbers them randomly.)"""
    counts = {}
    for line in CORPUS:
        for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(line)):
            for begin in range(len(word)):
                for end in range(begin + 1, min(len(word), begin + 10) + 1):
                    piece = (prefix if begin else "") + word[begin:end]
                    counts[piece] = counts.get(piece, 0) + 1
    # Most characters; words with other characters are unknown.
    return sorted(counts, key=lambda piece: (-counts[piece], piece))[:count]


def word_piece(normalizer, prefix, **limits):
    special_tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokens = special_tokens + word_pieces(normalizer, pre_tokenizer, prefix, 795)
    vocab = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]", continuing_subword_prefix=prefix, **limits))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.add_special_tokens([special(t) for t in special_tokens])
    return tokenizer


def bert():
    normalizer = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True
    )
    tokenizer = word_piece(normalizer, "##")
    tokenizer.post_processor = template(tokenizer, "[CLS] $A [SEP]", ["[CLS]", "[SEP]"])
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return tokenizer, None


def bert_cased():
    """Cased, and different from `bert`: another prefix, short words, little normalization."""
    normalizer = normalizers.BertNormalizer(
        clean_text=False, handle_chinese_chars=False, strip_accents=True, lowercase=False
    )
    tokenizer = word_piece(normalizer, "@", max_input_chars_per_word=12)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.decoder = decoders.WordPiece(prefix="@", cleanup=False)
    return tokenizer, None


def unigram(special_tokens, count):
    """Returns frequent parts of the corpus' words, with the logarithms of their frequencies as scores."""
    counts = {}
    for word in (SPACE + word for line in CORPUS for word in line.split()):
        for begin in range(len(word)):
            for end in range(begin + 1, min(len(word), begin + 10) + 1):
                counts[word[begin:end]] = counts.get(word[begin:end], 0) + 1
    total = sum(counts.values())
    pieces = sorted(counts, key=lambda piece: (-counts[piece], piece))[:count]
    vocab = [(token, 0.0) for token in special_tokens]
    vocab += [(piece, math.log(counts[piece] / total)) for piece in pieces]
    return Tokenizer(models.Unigram(vocab, unk_id=special_tokens.index("<unk>")))


def xlm_roberta():
    """Unigram, with SentencePiece's table of normalizations. sentencepiece wrote precompiled_charsmap.txt from rules for
    spaces, control characters, full-width letters, ligatures, marks and Arabic, Hangul and Katakana characters."""
    tokenizer = unigram(["<s>", "<pad>", "</s>", "<unk>"], 700)
    tokenizer.add_special_tokens([special(t) for t in ["<s>", "<pad>", "</s>", "<unk>"]] + [special("<mask>", lstrip=True)])
    tokenizer.normalizer = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.Metaspace(replacement=SPACE, prepend_scheme="always")
    tokens = [(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=tokens
    )
    table = (Path(__file__).parent / "precompiled_charsmap.txt").read_text().replace("\n", "")

    def as_published(data):
        precompiled = {"type": "Precompiled", "precompiled_charsmap": table}
        data["normalizer"] = {"type": "Sequence", "normalizers": [precompiled, data["normalizer"]]}
        metaspace = {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}
        data["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [data["pre_tokenizer"], metaspace]}

    return edit(tokenizer, as_published)


LAYOUTS = [llama3, qwen2, gpt2, roberta, o200k, deepseek, llama2, mistral, gemma, metaspace, words, bert, bert_cased, xlm_roberta]

# --- texts -----------------------------------------------------------------------------------------------------------

EDGE_TEXTS = [
    "", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "a", " a", "a ", "  a", "a  ", " a b ", "\0", "a\0b",
    " " * 7 + "x", "x" + " " * 16, " " * 40, "\n" * 9, "a" + "\n" * 5 + "b", " \n \n  \n\t\t\n x", "\t\t\tif x:\n\t\t\t\tpass",
    "    indented\n        twice\n", "trailing   \n\n   both   ", "\u00a0nbsp\u00a0\u00a0x", "\u2003em\u3000wide\u2028line\u2029par",
    "\u180emongolian\u200bzero\u200cwidth\u200dhere\ufeffbom", "line\x0bvertical\x0cfeed\x85next", "\x01\x02\x1f\x7f control",
    "1", "12", "123", "1234", "12345678901234567890", "3.14159", "1,000,000", "-1e-10", "0x7fff", "²³¹¼½¾", "١٢٣٤", "१२३", "Ⅷ Ⅻ",
    "①②③", "12ab34cd", "v1.2.3-rc4", "2024-05-17T12:34:56Z",
    "don't", "DON'T", "I'll we've you're it's he'd I'm", "I'LL WE'VE IT'S", "'s 't 're", "''s", "rock'n'roll", "it’s", "'ſ 'S",
    "hello world", "Hello, World!", "HELLO", "CamelCaseWord", "snake_case_word", "kebab-case", "ALLCAPS lower MiXeD", "HTTPServer's",
    "The quick brown fox jumps over the lazy dog.", "unmerged zebra quick", " zebra", "zebrazebra", "¿Qué?", "naïve café Zoë",
    "e\u0301 n\u0303 A\u030a", "\u0301 starts with a mark", "a\u0301\u0323 b\u0323\u0301", "\u1e69 s\u0323\u0307 s\u0307\u0323",
    "\u212b \u2126 \u00c5", "ﬁ ﬂ ﬀ ﬅ", "ẛ̣", "ｆｕｌｌ　ｗｉｄｔｈ １２３", "ﾊﾝｶｸ ｶﾞ", "\u1100\u1161\u11a8 각 \uac00\u11a8", "İstanbul ıI", "ΣΑΣ ς σ", "ǅ ǈ ǋ",
    "Straße STRASSE ẞ", "שָׁלוֹם", "الْعَرَبِيَّةُ", "हिन्दी क्षत्रिय", "தமிழ்", "ไทยภาษา", "ខ្មែរ", "བོད་ཡིག", "ᐃᓄᒃᑎᑐᑦ", "ⴰⵎⴰⵣⵉⵖ", "ꦗꦮ",
    "敏捷的狐狸", "你好，世界！", "漢字とかな交じり文", "カタカナ・ひらがな", "안녕하세요", "𠀀𠀁𪚥", "中文english混合123", "１二三",
    "Быстрая лиса", "Καλημέρα", "ქართული", "հայերեն", "Tiếng Việt", "ʻOkina", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "🂡🂢", "𒀀𒀁", "𐍈",
    "😀", "😀😃😄", "👍🏽", "👨‍👩‍👧‍👦", "👩🏿‍🚀 in space", "🏳️‍🌈🏴‍☠️", "🇩🇪🇫🇷🇯🇵", "1️⃣2️⃣", "☺️☺", "❤️‍🔥", "a😀b", " 😀 ", "🤖🤖🤖🤖🤖🤖🤖🤖", "™©®",
    "x = y + 1;", "a[i][j] *= b->c;", "std::vector<std::pair<int, int>> v{{1, 2}};", "#include <cstdio>\n\nint main() {\n  return 0;\n}\n",
    "def f(x):\n    return x**2  # square\n", "\\frac{a}{b} \\\\ $x^2$", "https://example.org/a/b?c=d&e=f#g", "user@example.com", "C:\\temp\\x.txt",
    "{\"a\": [1, 2.5, null]}", "<a href='x'>&amp;</a>", "!!!", "...", "?!?!", "--", "---- ----", "(((", "=>", "&&", "a/b//c", "/\n/", "a,b;c:d", "«guillemets» „quotes“",
    "€100 £5 ¥", "50% off", "№ 5 § 3 ¶", "a_b __c__", "`code` *bold* _it_", "~!@#$%^&*()_+{}|:\"<>?",
    "\ufffd", "a\ufffdb\ufffd\ufffd", "\ufdd0\uffff", "\ue000private", "\U0010ffff", "\u061cbidi\u202etext\u202c",
    "Ġ", "▁", "▁▁a", "a▁b", " ▁ ▁", "<0x0A>", "<0xE2><0x96>", "##a", "Ċ", "Token token Tokens page pages homepage",
    "tokenizer Übermut übermut UBERMUT U\u0308bermut", "x [left] y [right] z", "x   [left]   [right]   [both]   y", "a[both]b [bo th]en [both]en[both]",
    "<s>hello</s>", "</s><s>", " <s> a </s> b", "<unk> <pad> <mask>  <mask>", "<bos>x<eos>", "<|endoftext|>", "a<|endoftext|>b", "<|endoftext|", "<|endoftext|><|endoftext|>",
    "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n",
    "<think>\nhm\n</think>\n\n<tool_call>{}</tool_call>", "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n", "[INST] Hi [/INST] Hello </s>", "[INST][/INST]", "[INST]x",
    "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜>", "<|start|>user<|message|>x<|end|>", "<unk", "[UNK][PAD]", "the<s>the", "the </s>the", "\n\n\n\n\n", "a\n\n\nb\n\nc\n", "x  y   z    w     v",
]

# Blocks of the random characters.
BLOCKS = [
    (0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x2FF), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
    (0x900, 0x97F), (0x980, 0x9FF), (0xB80, 0xBFF), (0xE00, 0xE7F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1780, 0x17FF), (0x1E00, 0x1EFF), (0x2000, 0x206F), (0x20A0, 0x20BF),
    (0x2100, 0x214F), (0x2190, 0x21FF), (0x2460, 0x24FF), (0x2580, 0x259F), (0x2600, 0x27BF), (0x3000, 0x303F), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xFB00, 0xFB4F),
    (0xFE00, 0xFE0F), (0xFF00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF), (0xE0100, 0xE01EF),
]  # fmt: skip


def is_settled(char):
    """Returns true if the character is in Unicode 14, the version of Debian 12's PCRE2."""
    return unicodedata.category(char) != "Cn"


def random_texts(rng, count):
    pieces = sum((line.split(" ") for line in CORPUS), []) + [t for t in EDGE_TEXTS if 0 < len(t) < 12]
    spaces = [" "] * 10 + ["", "", "  ", "\n", "\n\n", "\t", "   ", " \n", "\u00a0"]
    for i in range(count):
        kind = i % 5
        if kind < 2:  # words and edge cases, mixed
            yield "".join(rng.choice(pieces) + rng.choice(spaces) for _ in range(rng.randint(2, 14)))
        elif kind == 2:  # characters of a few blocks
            blocks = rng.sample(BLOCKS, rng.randint(1, 3)) + [(0x20, 0x20)]
            chars = (chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(3, 30)))
            yield "".join(c for c in chars if is_settled(c))
        elif kind == 3:  # bytes that are mostly not UTF-8
            pool = [rng.randint(0, 255) for _ in range(8)] + list("aé中😀 ".encode())
            text = bytes(rng.choice(pool) for _ in range(rng.randint(3, 40))).decode(errors="replace")
            yield "".join(c for c in text if is_settled(c))
        else:  # a cut out of the corpus, and runs
            line = rng.choice(CORPUS)
            start = rng.randrange(len(line))
            yield line[start : start + rng.randint(1, 60)] + rng.choice(" \n.a0é中=\t") * rng.choice([0, 1, 3, 30])


def write_lines(path, lines):
    with open(path, "w", encoding="utf-8") as out:
        for line in lines:
            out.write(json.dumps(line, ensure_ascii=True, separators=(",", ":")) + "\n")


def decoded(tokenizer, case, ids, text):
    skip = tokenizer.decode(ids, skip_special_tokens=True)
    keep = tokenizer.decode(ids, skip_special_tokens=False)
    if skip != text:
        case["skip"] = skip
    if keep != skip:
        case["keep"] = keep
    return case


def golden(tokenizer, texts, rng):
    empty = tokenizer.encode("x", add_special_tokens=True).ids
    plain = tokenizer.encode("x", add_special_tokens=False).ids
    at = next(i for i in range(len(empty)) if empty[i : i + len(plain)] == plain)
    before, after = empty[:at], empty[at + len(plain) :]
    yield {"before": before, "after": after}
    for i, text in enumerate(texts):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special_tokens=True).ids == before + ids + after
        yield decoded(tokenizer, {"i": i, "ids": ids}, ids, text)
    vocab = tokenizer.get_vocab_size()
    byte_like = [i for i in range(vocab) if tokenizer.id_to_token(i).startswith("<0x")]
    for i in range(60):
        pool = byte_like if byte_like and i % 3 == 0 else range(vocab)
        ids = before + [rng.choice(pool) if rng.random() < 0.8 else rng.randrange(vocab) for _ in range(rng.randint(0, 16))]
        yield decoded(tokenizer, {"ids": ids}, ids, None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent.parent / "tests/data/tokenizers")
    parser.add_argument("--random-texts", type=int, default=120, help="in addition to the %d fixed ones" % len(EDGE_TEXTS))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    texts = EDGE_TEXTS + list(random_texts(random.Random(args.seed), args.random_texts))
    args.out.mkdir(parents=True, exist_ok=True)
    write_lines(args.out / "texts.jsonl", texts)
    for layout in LAYOUTS:
        tokenizer, data = layout()
        folder = args.out / layout.__name__
        folder.mkdir(exist_ok=True)
        data = data or json.loads(tokenizer.to_str())
        with open(folder / "tokenizer.json", "w", encoding="utf-8") as out:
            json.dump(data, out, ensure_ascii=False, separators=(",", ":"))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        write_lines(folder / "golden.jsonl", golden(tokenizer, texts, random.Random(args.seed)))
        print(layout.__name__, tokenizer.get_vocab_size(), "tokens")


if __name__ == "__main__":
    main()
