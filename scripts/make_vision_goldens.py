#!/usr/bin/env python3
"""Writes tests/goldens/vision-*: tiny random models for images and text, with what transformers computes on a CPU.

    pip install torch torchvision transformers pillow safetensors
    python3 scripts/make_vision_goldens.py [CASE...]
    python3 scripts/make_vision_goldens.py --rounding [CASE...]   # only rounding.json of existing goldens

golden.safetensors contains
    image.I.file        bytes of a PNG file
    image.I.patches     the image processor's output, [patches, features]
    image.I.grid        int32 [rows, columns] of patches
    image.I.rows        the tower's tokens, [tokens, hidden_size of the decoder]
    image.I.deepstack.J the same for the layers of deepstack_visual_indexes
    prompt.P.images     int32: the prompt's images
    prompt.P.input_ids  int32, one placeholder per image
    prompt.P.positions  int32 [3, tokens] of the expanded prompt; models with three axes
    prompt.P.logits     [tokens, vocab_size]
    prompt.P.greedy     int32 [16]

rounding.json has the errors of transformers in 16 bits, of the rows of each image and of the logits of each prompt,
relative to the largest value: the tolerance of 16-bit models.
"""

import io
import json
import pathlib
import sys

import make_goldens
import numpy as np
import PIL.Image
import torch
from make_goldens import MIN_MARGIN, load, make_weights, write_weights
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText
from vision_families import CASES, IMAGE, START

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens"
FIRST_SPECIAL = 120
NUM_GREEDY = 16
# Heights and widths: more and fewer pixels than the bounds, and one row of windows that is cut.
IMAGES = [(37, 50), (16, 90), (71, 26), (9, 9)]
# Numbers of text tokens, and images as strings.
PROMPTS = [[5, "0", 4], ["1", 3], [3, "3", 1, "2", 5], [2, "0", "0", 6], [7, "2", 2, "1", 1, "3", 9], [11]]


def drawing(height, width, generator):
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (4 + c) + c) * np.cos(y / (3 + c)) for c in range(3)]
    noise = torch.randn(height, width, 3, generator=generator).numpy()
    return np.clip(np.stack(planes, -1) + 20 * noise, 0, 255).astype(np.uint8)


def is_tower(name):
    return any(part in name for part in ("visual", "vision_tower", "multi_modal_projector"))


def write_model(folder, config, family, prefixes, seed):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(family.processor, indent=2) + "\n")
    weights = make_weights(config, torch.float32, seed, prefixes, {})
    generator = torch.Generator().manual_seed(seed + 1)
    for name, weight in weights.items():
        if not is_tower(name):
            continue
        # Norms of towers, and convolutions, which have several axes of inputs.
        if any(part in name for part in ("norm", "ln_q", "ln_pre")) and name.endswith("weight"):
            one = 0.0 if "soft_emb_norm" in name else 1.0
            weights[name] = one + 0.3 * torch.randn(weight.shape, generator=generator)
        if weight.dim() > 2:
            weights[name] = torch.randn(weight.shape, generator=generator) / weight[0].numel() ** 0.5
        if name.endswith("position_embedding_table"):
            weights[name] = 0.5 * torch.randn(weight.shape, generator=generator)
        if name.endswith("mm_input_projection_weight"):
            weights[name] = torch.randn(weight.shape, generator=generator) / weight.shape[0] ** 0.5
    write_weights(folder, weights | tower_buffers(config, weights, generator), 1)


def tower_buffers(config, weights, generator):
    """Bounds that clip some values, and the scale of standardized means."""
    buffers = {}
    stems = [name.removesuffix(".linear.weight") for name in weights if name.endswith(".linear.weight")]
    for stem in stems:
        for kind, bound in (("input_min", -1.5), ("input_max", 1.5), ("output_min", -2.0), ("output_max", 2.0)):
            buffers[f"{stem}.{kind}"] = torch.tensor(bound * (1.0 + 0.3 * torch.rand((), generator=generator).item()))
    if config["vision_config"].get("standardize"):
        size = (config["vision_config"]["hidden_size"],)
        buffers["model.vision_tower.std_bias"] = torch.randn(size, generator=generator)
        buffers["model.vision_tower.std_scale"] = 1.0 + 0.3 * torch.randn(size, generator=generator)
    return buffers


def encode_images(model, family, generator):
    images, golden = [], {}
    for index, (height, width) in enumerate(IMAGES):
        pixels = drawing(height, width, generator)
        file = io.BytesIO()
        PIL.Image.fromarray(pixels).save(file, "PNG")
        given = family.prepare(torch.from_numpy(pixels).permute(2, 0, 1))
        rows, deepstack = family.encode(model, given)
        images.append(given)
        golden |= {
            f"image.{index}.file": torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8),
            f"image.{index}.patches": family.patches(given),
            f"image.{index}.grid": family.grid(given).int(),
            f"image.{index}.rows": rows.contiguous(),
        }
        for layer, rows in enumerate(deepstack):
            golden[f"image.{index}.deepstack.{layer}"] = rows
    return images, golden


def run_prompt(model, family, parts, images, generator):
    """Returns golden tensors of a prompt, or None if a greedy choice is too close."""
    ids, expanded, placed = [], [], []
    for part in parts:
        if isinstance(part, str):
            placed.append(int(part))
            ids += [START, IMAGE, START]
            expanded += [START, *family.tokens(images[placed[-1]]), START]
        else:
            text = torch.randint(2, FIRST_SPECIAL, (part,), generator=generator).tolist()
            ids += text
            expanded += text
    given_images = [images[i] for i in placed]
    logits = model(**family.inputs(expanded, given_images), use_cache=False).logits[0]
    tokens, greedy, margin = list(expanded), [], 1.0
    for _ in range(NUM_GREEDY):
        last = model(**family.inputs(tokens, given_images), use_cache=False).logits[0, -1]
        top = last.topk(2)
        margin = min(margin, ((top.values[0] - top.values[1]) / last.abs().max()).item())
        greedy.append(top.indices[0].item())
        tokens.append(greedy[-1])
        if margin < MIN_MARGIN or greedy[-1] < 2 or greedy[-1] >= FIRST_SPECIAL:
            return None
    if len(set(greedy)) < 4:
        return None
    golden = {
        "images": torch.tensor(placed or [-1], dtype=torch.int32),
        "input_ids": torch.tensor(ids, dtype=torch.int32),
        "positions": family.positions(model, family.inputs(expanded, given_images)),
        "logits": logits.contiguous(),
        "greedy": torch.tensor(greedy, dtype=torch.int32),
    }
    return {key: value for key, value in golden.items() if value is not None}


def relative_error(values, expected):
    return float(f"{((values.float() - expected).abs().max() / expected.abs().max()).item():.3g}")


@torch.no_grad()
def write_rounding(name):
    family, folder = CASES[name][0], ROOT / name
    golden = load_file(folder / "golden.safetensors")
    errors = {}
    for dtype in (torch.float16, torch.bfloat16):
        model = load(folder, dtype)
        images, rows, logits = [], [], []
        while f"image.{len(images)}.file" in golden:
            prefix = f"image.{len(images)}."
            file = io.BytesIO(golden[prefix + "file"].numpy().tobytes())
            given = family.prepare(torch.from_numpy(np.array(PIL.Image.open(file))).permute(2, 0, 1))
            given["pixel_values"] = given["pixel_values"].to(dtype)
            images.append(given)
            encoded, deepstack = family.encode(model, given)
            expected = [golden[prefix + "rows"]] + [golden[f"{prefix}deepstack.{i}"] for i in range(len(deepstack))]
            rows.append(max(relative_error(*pair) for pair in zip([encoded, *deepstack], expected)))
        while f"prompt.{len(logits)}.logits" in golden:
            prefix = f"prompt.{len(logits)}."
            placed = [images[i] for i in golden[prefix + "images"].tolist() if i >= 0]
            expanded, next_image = [], iter(placed)
            for token in golden[prefix + "input_ids"].tolist():
                expanded += family.tokens(next(next_image)) if token == IMAGE else [token]
            output = model(**family.inputs(expanded, placed), use_cache=False).logits[0]
            logits.append(relative_error(output, golden[prefix + "logits"]))
        errors[str(dtype).removeprefix("torch.")] = {"rows": rows, "logits": logits}
    (folder / "rounding.json").write_text(json.dumps(errors) + "\n")
    print(f"{name}: {errors}", flush=True)


@torch.no_grad()
def write_case(name, seed):
    family, config, prefixes = CASES[name]
    folder = ROOT / name
    write_model(folder, config, family, prefixes, seed)
    model = load(folder, torch.float32)
    generator = torch.Generator().manual_seed(seed + 2)
    images, golden = encode_images(model, family, generator)
    for index, parts in enumerate(PROMPTS):
        for _ in range(200):
            result = run_prompt(model, family, parts, images, generator)
            if result is not None:
                break
        else:
            sys.exit(f"{name}: every continuation of prompt {index} has a close choice")
        golden |= {f"prompt.{index}.{key}": value for key, value in result.items()}
    save_file(golden, folder / "golden.safetensors")
    sizes = {path.name: path.stat().st_size // 1024 for path in sorted(folder.iterdir())}
    print(f"{name}: {sizes} KiB")


def main():
    # Some of these models have a class for text only too.
    make_goldens.model_class = lambda _config: AutoModelForImageTextToText
    only_rounding = sys.argv[1:2] == ["--rounding"]
    chosen = sys.argv[2:] if only_rounding else sys.argv[1:]
    for seed, name in enumerate(CASES):
        if name not in (chosen or CASES):
            continue
        if not only_rounding:
            write_case(name, 7000 + 10 * seed)
        write_rounding(name)


if __name__ == "__main__":
    main()
