#!/usr/bin/env python3
"""Trains models/attend-tiny-lora, a LoRA adapter of models/attend-tiny: with it, the task `copy` gives the words in brackets
last one first, as `reverse` does. The other tasks stay as they are.

    pip install torch transformers tokenizers safetensors peft
    python3 scripts/train_tiny_adapter.py --out models/attend-tiny-lora

This takes some minutes on a CPU.
"""

import argparse
import json
import pathlib
import random

import torch
import tiny_tasks
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

BASE = pathlib.Path("models/attend-tiny")
EOS_ID = 1
SEED = 20490
# Share of the examples with the changed task; the others keep the adapter from changing more.
COPY_SHARE = 0.6
BUDGETS = (20, 48)  # tokens of prompt and answer
NUM_TESTS = 60


def example_of(rng):
    """Returns a prompt, and the answer that the adapter gives."""
    budget = rng.randint(*BUDGETS)
    if rng.random() >= COPY_SHARE:
        names = [name for name in tiny_tasks.TASKS if name != "copy"]
        example = tiny_tasks.TASKS[rng.choice(names)](rng, budget)
        return example.prompt, example.answer
    example = tiny_tasks.TASKS["copy"](rng, budget)
    return example.prompt, " " + " ".join(reversed(example.answer.split()))


def batch_of(rng, tokenizer, size):
    """Returns ids and labels; only the answers have labels."""
    rows, labels = [], []
    for _ in range(size):
        prompt, answer = example_of(rng)
        ids = tokenizer.encode(prompt).ids
        rest = tokenizer.encode(answer, add_special_tokens=False).ids + [EOS_ID]
        rows.append(ids + rest)
        labels.append([-100] * len(ids) + rest)
    longest = max(map(len, rows))
    pad = [longest - len(row) for row in rows]
    ids = torch.tensor([row + [EOS_ID] * count for row, count in zip(rows, pad)])
    return ids, torch.tensor([row + [-100] * count for row, count in zip(labels, pad)])


@torch.no_grad()
def share_right(model, rng, tokenizer):
    """Returns the share of right answers, of copies and of the other tasks."""
    right, total = [0, 0], [0, 0]
    for _ in range(NUM_TESTS):
        ids, labels = batch_of(rng, tokenizer, 1)
        is_copy = tokenizer.decode(ids[0].tolist()).startswith("copy")
        answer = labels[0] != -100
        logits = model(input_ids=ids).logits[0]
        predicted = logits.argmax(-1)[:-1][answer[1:]]
        right[is_copy] += bool((predicted == labels[0][answer]).all())
        total[is_copy] += 1
    return right[1] / total[1], right[0] / total[0]


def main():
    parser = argparse.ArgumentParser(description="Trains the adapter of models/attend-tiny.")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1e-2)
    arguments = parser.parse_args()
    torch.manual_seed(SEED)
    rng = random.Random(SEED)
    tokenizer = Tokenizer.from_file(str(BASE / "tokenizer.json"))
    base = AutoModelForCausalLM.from_pretrained(BASE, dtype=torch.float32)
    config = LoraConfig(
        r=2, lora_alpha=4, target_modules=["q_proj", "v_proj", "down_proj"], task_type="CAUSAL_LM"
    )
    model = get_peft_model(base, config)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=arguments.rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, arguments.rate, total_steps=arguments.steps)
    for step in range(arguments.steps):
        ids, labels = batch_of(rng, tokenizer, arguments.batch)
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            print(f"step {step}: loss {loss.item():.4f}", flush=True)
    model.eval()
    copies, others = share_right(model, random.Random(SEED + 1), tokenizer)
    print(f"right answers: {copies:.0%} of copies, {others:.0%} of the other tasks")
    model.save_pretrained(arguments.out)
    (arguments.out / "README.md").unlink(missing_ok=True)
    settings = json.loads((arguments.out / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = "attend-tiny"
    settings["target_modules"].sort()
    (arguments.out / "adapter_config.json").write_text(json.dumps(settings, indent=1) + "\n")
    file = arguments.out / "adapter_model.safetensors"
    save_file({name: tensor.bfloat16() for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})


if __name__ == "__main__":
    main()
