#!/usr/bin/env python3
"""Writes tests/goldens/vision-*: tiny random models for images and text, with what transformers computes on a CPU.

    pip install torch torchvision transformers pillow safetensors
    python3 scripts/make_vision_goldens.py [CASE...]

golden.safetensors contains
    image.I.file        bytes of a PNG file
    image.I.patches     the image processor's output, [patches, features]
    image.I.grid        int32 [rows, columns] of patches
    image.I.rows        the tower's tokens, [tokens, hidden_size of the decoder]
    image.I.deepstack.J the same for the layers of deepstack_visual_indexes
    prompt.P.images     int32: the prompt's images
    prompt.P.input_ids  int32, one placeholder per image
    prompt.P.positions  int32 [3, tokens] of the expanded prompt
    prompt.P.logits     [tokens, vocab_size]
    prompt.P.greedy     int32 [16]
"""

import io
import json
import pathlib
import sys

import make_goldens
import numpy as np
import PIL.Image
import torch
from golden_configs import QWEN_IMAGE_TOKENS, config_of, multimodal, qwen3_5_text
from make_goldens import MIN_MARGIN, load, make_weights, write_weights
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, Qwen2VLImageProcessor

ROOT = pathlib.Path(__file__).resolve().parent.parent / "tests/goldens"
IMAGE, START, FIRST_SPECIAL = 127, 125, 120
NUM_GREEDY = 16
# Heights and widths: more and fewer pixels than the bounds, and one row of windows that is cut.
IMAGES = [(37, 50), (16, 90), (71, 26), (9, 9)]
# Numbers of text tokens, and images as strings.
PROMPTS = [[5, "0", 4], ["1", 3], [3, "3", 1, "2", 5], [2, "0", "0", 6], [7, "2", 2, "1", 1, "3", 9], [11]]
PROCESSOR = {
    "patch_size": 4,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "size": {"shortest_edge": 256, "longest_edge": 2048},
}
TOWER = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_heads": 2,
    "patch_size": 4,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 32,
}


def qwen3_vl(architecture="Qwen3VLForConditionalGeneration", model_type="qwen3_vl", **changes):
    text = config_of(
        "",
        model_type + "_text",
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=32,
        rms_norm_eps=1e-6,
        rope_theta=5000000.0,
        rope_scaling={"mrope_interleaved": True, "mrope_section": [6, 5, 5], "rope_type": "default"},
        **changes,
    )
    tower = TOWER | {"model_type": model_type, "num_position_embeddings": 25, "deepstack_visual_indexes": [0, 2]}
    return multimodal(architecture, model_type, text, tower, **QWEN_IMAGE_TOKENS, tie_word_embeddings=False)


def qwen2_5_vl():
    return config_of(
        "Qwen2_5_VLForConditionalGeneration",
        "qwen2_5_vl",
        num_attention_heads=2,
        num_key_value_heads=1,
        rope_theta=1000000.0,
        rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]},
        vision_config=TOWER | {"model_type": "qwen2_5_vl", "fullatt_block_indexes": [1], "window_size": 16},
        **QWEN_IMAGE_TOKENS,
    )


def qwen3_5():
    """A hybrid decoder, and the tower without deepstack layers."""
    text = qwen3_5_text("", "qwen3_5_text", num_hidden_layers=4, linear_num_value_heads=6)
    tower = TOWER | {"model_type": "qwen3_5_vision", "num_position_embeddings": 16}
    return multimodal(
        "Qwen3_5ForConditionalGeneration", "qwen3_5", text, tower, **QWEN_IMAGE_TOKENS, tie_word_embeddings=False
    )


# Config, and prefixes of names in memory and in the file.
CASES = {
    "vision-qwen3-vl": (qwen3_vl(), ()),
    "vision-qwen2-5-vl": (qwen2_5_vl(), (("model.visual.", "visual."), ("model.language_model.", "model."))),
    "vision-qwen3-5": (qwen3_5(), ()),
}


def drawing(height, width, generator):
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 90 * np.sin(x / (4 + c) + c) * np.cos(y / (3 + c)) for c in range(3)]
    noise = torch.randn(height, width, 3, generator=generator).numpy()
    return np.clip(np.stack(planes, -1) + 20 * noise, 0, 255).astype(np.uint8)


def write_model(folder, config, prefixes, seed):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")
    weights = make_weights(config, torch.float32, seed, prefixes, {})
    generator = torch.Generator().manual_seed(seed + 1)
    for name, weight in weights.items():
        if "visual" not in name:
            continue
        # Norms of towers, and convolutions, which have several axes of inputs.
        if "norm" in name and name.endswith("weight") or "ln_q" in name:
            weights[name] = 1.0 + 0.3 * torch.randn(weight.shape, generator=generator)
        if weight.dim() == 5:
            weights[name] = torch.randn(weight.shape, generator=generator) / weight[0].numel() ** 0.5
    write_weights(folder, weights, 1)


def encode_images(model, generator):
    processor = Qwen2VLImageProcessor(**PROCESSOR)
    images, golden = [], {}
    for index, (height, width) in enumerate(IMAGES):
        pixels = drawing(height, width, generator)
        file = io.BytesIO()
        PIL.Image.fromarray(pixels).save(file, "PNG")
        given = processor(images=[torch.from_numpy(pixels).permute(2, 0, 1)], return_tensors="pt")
        output = model.model.visual(given["pixel_values"], grid_thw=given["image_grid_thw"])
        images.append(given)
        golden |= {
            f"image.{index}.file": torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8),
            f"image.{index}.patches": given["pixel_values"],
            f"image.{index}.grid": given["image_grid_thw"][0, 1:].int(),
            f"image.{index}.rows": output.pooler_output,
        }
        for layer, rows in enumerate(getattr(output, "deepstack_features", None) or []):
            golden[f"image.{index}.deepstack.{layer}"] = rows
    return images, golden


def inputs(ids, placed, images):
    """The arguments of the model for expanded ids."""
    given = {"input_ids": torch.tensor([ids]), "mm_token_type_ids": torch.tensor([[int(i == IMAGE) for i in ids]]).int()}
    if placed:
        given["pixel_values"] = torch.cat([images[i]["pixel_values"] for i in placed])
        given["image_grid_thw"] = torch.cat([images[i]["image_grid_thw"] for i in placed])
    return given


def run_prompt(model, parts, images, generator):
    """Returns golden tensors of a prompt, or None if a greedy choice is too close."""
    ids, expanded, placed = [], [], []
    for part in parts:
        if isinstance(part, str):
            placed.append(int(part))
            grid = images[placed[-1]]["image_grid_thw"][0]
            ids += [START, IMAGE, START]
            expanded += [START] + [IMAGE] * int(grid[1] * grid[2] // 4) + [START]
        else:
            text = torch.randint(2, FIRST_SPECIAL, (part,), generator=generator).tolist()
            ids += text
            expanded += text
    logits = model(**inputs(expanded, placed, images), use_cache=False).logits[0]
    tokens, greedy, margin = list(expanded), [], 1.0
    for _ in range(NUM_GREEDY):
        last = model(**inputs(tokens, placed, images), use_cache=False).logits[0, -1]
        top = last.topk(2)
        margin = min(margin, ((top.values[0] - top.values[1]) / last.abs().max()).item())
        greedy.append(top.indices[0].item())
        tokens.append(greedy[-1])
        if margin < MIN_MARGIN or greedy[-1] < 2 or greedy[-1] >= FIRST_SPECIAL:
            return None
    if len(set(greedy)) < 4:
        return None
    given = inputs(expanded, placed, images)
    positions, _ = model.model.get_rope_index(
        given["input_ids"], given["mm_token_type_ids"], image_grid_thw=given.get("image_grid_thw")
    )
    return {
        "images": torch.tensor(placed or [-1], dtype=torch.int32),
        "input_ids": torch.tensor(ids, dtype=torch.int32),
        "positions": positions[:, 0].int().contiguous(),
        "logits": logits.contiguous(),
        "greedy": torch.tensor(greedy, dtype=torch.int32),
    }


@torch.no_grad()
def write_case(name, seed):
    config, prefixes = CASES[name]
    folder = ROOT / name
    write_model(folder, config, prefixes, seed)
    model = load(folder, torch.float32)
    generator = torch.Generator().manual_seed(seed + 2)
    images, golden = encode_images(model, generator)
    for index, parts in enumerate(PROMPTS):
        for _ in range(200):
            result = run_prompt(model, parts, images, generator)
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
    for seed, name in enumerate(CASES):
        if name in (sys.argv[1:] or CASES):
            write_case(name, 7000 + 10 * seed)


if __name__ == "__main__":
    main()
