#!/usr/bin/env python3
"""Writes the test and demo prompts of models/attend-tiny, with the answers of transformers.

    pip install torch transformers
    python3 scripts/make_tiny_goldens.py

tests/data/attend-tiny-prompts.jsonl holds the 200 held-out prompts of tiny_tasks.py, and for
each the greedy tokens of Hugging Face transformers: the committed weights, computed in float32.
models/attend-tiny/demo_prompts.jsonl holds the prompts of scripts/demo.sh.
"""

import argparse
import json
import pathlib

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import tiny_tasks

MAX_NEW_TOKENS = 64


def greedy(model, input_ids):
    """Returns the new tokens of a greedy continuation, including the end token."""
    ids = torch.tensor([input_ids])
    output = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        max_new_tokens=MAX_NEW_TOKENS,
        pad_token_id=model.config.eos_token_id,
    )
    return output[0, len(input_ids) :].tolist()


def golden(model, tokenizer, example):
    """Returns one line of the test data."""
    input_ids = tokenizer(example.prompt).input_ids
    output_ids = greedy(model, input_ids)
    return {
        "task": example.task,
        "prompt": example.prompt,
        "answer": example.answer,
        "input_ids": input_ids,
        "hf_output_ids": output_ids,
        "hf_text": tokenizer.decode(output_ids, skip_special_tokens=True),
    }


def write_lines(path, lines):
    """Writes JSON lines, one object per line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def report(lines):
    """Prints the number of right answers, per task and for prompts that fill the context."""
    for task in tiny_tasks.TASKS:
        mine = [line for line in lines if line["task"] == task]
        print(f"{task}: {sum(line['hf_text'] == line['answer'] for line in mine)} of {len(mine)}")
    lengths = [len(line["input_ids"]) + len(line["hf_output_ids"]) for line in lines]
    right = sum(line["hf_text"] == line["answer"] for line in lines)
    print(f"all: {right} of {len(lines)} right; {min(lengths)} to {max(lengths)} tokens, ", end="")
    print(f"{sum(length >= 1500 for length in lengths)} of 1,500 or more")


def main():
    parser = argparse.ArgumentParser(description="Writes the test and demo prompts of attend-tiny.")
    parser.add_argument("--model", type=pathlib.Path, default=pathlib.Path("models/attend-tiny"))
    parser.add_argument(
        "--out", type=pathlib.Path, default=pathlib.Path("tests/data/attend-tiny-prompts.jsonl")
    )
    arguments = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.float32).eval()
    with torch.inference_mode():
        lines = [golden(model, tokenizer, example) for example in tiny_tasks.held_out()]
    write_lines(arguments.out, lines)
    shown = [{"prompt": example.prompt, "answer": example.answer} for example in tiny_tasks.demo()]
    write_lines(arguments.model / "demo_prompts.jsonl", shown)
    report(lines)


if __name__ == "__main__":
    main()
