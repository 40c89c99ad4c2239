#!/usr/bin/env python3
"""Trains models/attend-tiny, the small model that attend's demo and tests run.

A Llama with 3 million parameters learns the tasks of tiny_tasks.py, which require attention over the whole context. The
script creates everything: the tokenizer, the config and the weights.

    pip install torch transformers tokenizers safetensors
    python3 scripts/train_tiny.py --out models/attend-tiny

The default needs minutes on a data-center GPU, and days on a CPU; try it there with
`--steps 20 --tokens-per-step 2048 --max-length 128`.

The same seed yields the same batches. Weights may differ in their last bits between machines, since a GPU adds
gradients in no fixed order.
"""

import argparse
import functools
import json
import math
import pathlib
import random
import time

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM

import tiny_tasks

BOS, EOS = "<|begin|>", "<|end|>"
BOS_ID, EOS_ID = 0, 1
# Llama 3's split: contractions, words with one leading mark or space, up to three digits, marks.
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

ALL_TASKS = tiny_tasks.TASKS | tiny_tasks.TRAINING_ONLY
# Training proceeds from short texts to the full context: heads first learn to search 64 tokens, then 2,048. Each stage:
# share of the steps at which it ends, and its lengths.
CURRICULUM = (
    (0.25, (64,)),
    (0.40, (64, 128, 256)),
    (0.55, (64, 256, 512)),
    (0.70, (64, 256, 1024)),
    (1.00, (64, 256, 1024, 2048, 2048)),
)
# Frequency of each task. Recall has one short answer in a long text and gets more examples.
WEIGHTS = {"recall": 2, "copy": 1, "reverse": 1, "next": 1, "count": 1, "path": 1, "sort": 1}
EVALUATION_LENGTHS = (64, 256, 1024, 2048)
VALIDATION_SEED = 7919  # offset of the seeds of evaluation batches from those of training


def train_tokenizer():
    """Returns a byte-level BPE tokenizer in which each word (with its space), number and mark of the tasks is a token.

    Every byte is a token too, so any other text can be encoded and decoded.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    words = [f" {word}" for word in [*tiny_tasks.WORDS, "end"]]
    text = words + list(ALL_TASKS) + [str(number) for number in range(10, 100)]
    text += [" ->", " >", " [", " ]"]
    trainer = trainers.BpeTrainer(
        vocab_size=100_000,  # more than needed: training stops when all words are merged
        min_frequency=1,
        special_tokens=[BOS, EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text, trainer)
    whole = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A {BOS} $B", special_tokens=[(BOS, BOS_ID)]
    )
    tokenizer.post_processor = processors.Sequence(
        [processors.ByteLevel(trim_offsets=False), whole]
    )
    return tokenizer


def model_config(vocab_size):
    """Four layers with 8 query heads on 2 KV heads: small, but GQA with a common ratio.

    head_dim 64 and a large rope_theta leave enough dimensions of low frequency to compare words
    at a distance of 2,000 tokens.
    """
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=tiny_tasks.CONTEXT,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        tie_word_embeddings=True,
        bos_token_id=BOS_ID,
        eos_token_id=EOS_ID,
        attn_implementation="sdpa",
    )


def lengths_at(step, num_steps, max_length):
    """Returns the curriculum's lengths for a step, limited to max_length."""
    lengths = next(lengths for until, lengths in CURRICULUM if step < until * num_steps)
    return [min(length, max_length) for length in lengths]


def encode(tokenizer, example):
    """Returns the token ids of prompt and answer with BOS and EOS, and the start of the answer."""
    prompt = tokenizer.encode(example.prompt).ids
    answer = tokenizer.encode(example.answer, add_special_tokens=False).ids
    return prompt + answer + [EOS_ID], len(prompt)


def make_batch(tokenizer, rng, length, num_examples, weights, avoid=frozenset()):
    """Returns examples with about `length` tokens, padded at the end.

    Returns the ids [num_examples, length], the flat positions that predict an answer token, those tokens, and the row of
    each. Padding is last, so causal attention never sees it.
    """
    rows = torch.full((num_examples, length), EOS_ID)
    positions, targets, owners = [], [], []
    tasks = rng.choices(list(weights), list(weights.values()), k=num_examples)
    for row, task in enumerate(tasks):
        # Half of the texts are near full length; the others have every shorter length.
        shortest = tiny_tasks.SHORTEST if rng.random() < 0.5 else length * 3 // 4
        example = ALL_TASKS[task](rng, rng.randint(shortest, length))
        ids, start = encode(tokenizer, example)
        if len(ids) > length or example.prompt in avoid:
            continue
        rows[row, : len(ids)] = torch.tensor(ids)
        positions += range(row * length + start - 1, row * length + len(ids) - 1)
        targets += ids[start:]
        owners += [row] * (len(ids) - start)
    return rows, torch.tensor(positions), torch.tensor(targets), torch.tensor(owners)


class Batches(Dataset):
    """Training batches by step number; each has its own seed, so any worker can create it."""

    def __init__(self, tokenizer, arguments):
        self.tokenizer = tokenizer
        self.arguments = arguments
        self.avoid = frozenset(example.prompt for example in tiny_tasks.held_out())

    def __len__(self):
        return self.arguments.steps

    def __getitem__(self, step):
        rng = random.Random(self.arguments.seed * 1_000_003 + step)
        length = rng.choice(lengths_at(step, self.arguments.steps, self.arguments.max_length))
        num_examples = max(self.arguments.min_examples, self.arguments.tokens_per_step // length)
        return make_batch(self.tokenizer, rng, length, num_examples, WEIGHTS, self.avoid)


def answer_logits(model, rows, positions):
    """Returns logits at the given flat positions only, since other tokens of a prompt predict nothing."""
    hidden = model.model(input_ids=rows, use_cache=False).last_hidden_state
    return model.lm_head(hidden.flatten(0, 1)[positions]).float()


def learning_rate(step, arguments):
    """Linear warm-up, then a cosine decay to a hundredth."""
    if step < arguments.warmup:
        return arguments.lr * (step + 1) / arguments.warmup
    share = (step - arguments.warmup) / max(1, arguments.steps - arguments.warmup)
    return arguments.lr * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share)))


def make_optimizer(model, arguments):
    """AdamW; norm weights and the embedding do not decay."""
    decay = [p for name, p in model.named_parameters() if p.dim() == 2 and "embed" not in name]
    keep = [p for name, p in model.named_parameters() if p.dim() != 2 or "embed" in name]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": keep, "weight_decay": 0.0}]
    fused = arguments.device == "cuda"
    return torch.optim.AdamW(groups, lr=arguments.lr, betas=(0.9, 0.98), fused=fused)


@torch.inference_mode()
def accuracy(model, tokenizer, task, length, num_examples, device):
    """Returns the fraction of answers that greedy decoding gets completely right, and the smallest logit margin.

    One forward pass over prompt and answer suffices: greedy decoding yields the answer exactly if
    each of its tokens is the best after the preceding ones.
    """
    right, total, margin = 0, 0, math.inf
    rows_at_once = max(1, 65536 // length)
    for start in range(0, num_examples, rows_at_once):
        rng = random.Random(f"{VALIDATION_SEED} {task} {length} {start}")
        batch = make_batch(
            tokenizer, rng, length, min(rows_at_once, num_examples - start), {task: 1}
        )
        rows, positions, targets, owners = (tensor.to(device) for tensor in batch)
        logits = answer_logits(model, rows, positions)
        best = logits.topk(2).values
        hits = logits.argmax(-1) == targets
        wrong_rows = owners[~hits].unique().numel()
        total += owners.unique().numel()
        right += owners.unique().numel() - wrong_rows
        margin = min(margin, (best[:, 0] - best[:, 1])[hits].min().item() if hits.any() else 0)
    return right / total, margin


def print_table(model, tokenizer, arguments, num_examples):
    """Accuracy per task and length, as lines of a Markdown table."""
    lengths = [length for length in EVALUATION_LENGTHS if length <= arguments.max_length]
    print("| task | " + " | ".join(f"{length} tokens" for length in lengths) + " |")
    print("| --- |" + " --- |" * len(lengths))
    for task in ALL_TASKS:
        cells = [
            "{:.1%} ({:.2f})".format(
                *accuracy(model, tokenizer, task, length, num_examples, arguments.device)
            )
            for length in lengths
        ]
        print(f"| {task} | " + " | ".join(cells) + " |", flush=True)


def train(model, tokenizer, arguments):
    """Runs the training loop: prints a line every 100 steps, and ten times saves the model and prints a small table."""
    cast = functools.partial(torch.autocast, arguments.device, dtype=torch.bfloat16)
    optimizer = make_optimizer(model, arguments)
    loader = DataLoader(
        Batches(tokenizer, arguments),
        batch_size=None,
        num_workers=arguments.workers,
        pin_memory=arguments.device == "cuda",
        prefetch_factor=8 if arguments.workers else None,
    )
    start, tokens = time.time(), 0
    for step, batch in enumerate(loader):
        rows, positions, targets, _ = (
            tensor.to(arguments.device, non_blocking=True) for tensor in batch
        )
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, arguments)
        with cast():
            logits = answer_logits(model, rows, positions)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        tokens += rows.numel()
        if step % 100 == 0:
            seconds = time.time() - start
            print(
                f"step {step} length {rows.shape[1]} loss {loss.item():.4f} "
                f"{tokens / 1e6:.0f}M tokens {seconds:.0f} s",
                flush=True,
            )
        if (step + 1) % max(1, arguments.steps // 10) == 0:
            save(model, tokenizer, arguments.out)
            with cast():
                print_table(model, tokenizer, arguments, 64)


def save(model, tokenizer, folder):
    """Writes the folder in the form of published models: config keys of transformers 4, bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: p.detach().to(torch.bfloat16) for name, p in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": model.config.vocab_size,
        "hidden_size": model.config.hidden_size,
        "intermediate_size": model.config.intermediate_size,
        "num_hidden_layers": model.config.num_hidden_layers,
        "num_attention_heads": model.config.num_attention_heads,
        "num_key_value_heads": model.config.num_key_value_heads,
        "head_dim": model.config.head_dim,
        "hidden_act": "silu",
        "max_position_embeddings": model.config.max_position_embeddings,
        "rms_norm_eps": model.config.rms_norm_eps,
        "rope_theta": model.config.rope_parameters["rope_theta"],
        "rope_scaling": None,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "torch_dtype": "bfloat16",
        "use_cache": True,
    }
    generation = {"bos_token_id": BOS_ID, "eos_token_id": EOS_ID, "do_sample": False}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "clean_up_tokenization_spaces": False,
        "model_max_length": tiny_tasks.CONTEXT,
    }
    tokenizer.save(str(folder / "tokenizer.json"))
    for name, content in (
        ("config.json", config),
        ("generation_config.json", generation),
        ("tokenizer_config.json", tokenizer_config),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n")


def parse_arguments():
    parser = argparse.ArgumentParser(description="Trains models/attend-tiny.")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("models/attend-tiny"))
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10000)
    parser.add_argument("--tokens-per-step", type=int, default=32768)
    parser.add_argument("--min-examples", type=int, default=64, help="minimum per step")
    parser.add_argument("--max-length", type=int, default=tiny_tasks.CONTEXT)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=500)
    parser.add_argument("--workers", type=int, default=0, help="processes that create batches")
    parser.add_argument("--examples", type=int, default=300, help="per cell of the final table")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.manual_seed(arguments.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = train_tokenizer()
    vocab_size = -(-tokenizer.get_vocab_size() // 64) * 64  # a multiple of 64, for efficient matrices
    model = LlamaForCausalLM(model_config(vocab_size)).to(arguments.device)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters")
    train(model, tokenizer, arguments)
    save(model, tokenizer, arguments.out)
    saved = LlamaForCausalLM.from_pretrained(arguments.out, dtype=torch.float32)
    print("the saved bfloat16 weights, computed in float32: right (smallest logit margin)")
    torch.set_float32_matmul_precision("highest")
    print_table(saved.to(arguments.device), tokenizer, arguments, arguments.examples)


if __name__ == "__main__":
    main()
