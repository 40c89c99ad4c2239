"""Vision towers of make_vision_goldens.py: how transformers prepares and encodes images, and what a prompt has for each."""

import torch
from golden_configs import (
    QWEN_IMAGE_TOKENS,
    config_of,
    gemma3_multimodal,
    gemma4_multimodal,
    ministral3,
    mistral3,
    multimodal,
    qwen3_5_text,
)
from transformers import Gemma3ImageProcessor, Gemma4ImageProcessor, PixtralImageProcessor, Qwen2VLImageProcessor
from transformers.models.gemma4 import image_processing_gemma4

IMAGE, START = 127, 125
PATCH = 4
# Goldens are small.
image_processing_gemma4._SUPPORTED_SOFT_TOKENS += (10,)
CLIP = {
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


class Family:
    """One processor and tower. `given` is the processor's output for one image."""

    merge = 2  # side of the square of patches that becomes a token
    processor = {}

    def prepare(self, pixels):
        return self.processor_class(**self.processor)(images=[pixels], return_tensors="pt")

    def patches(self, given):
        """Patches in the tower's order: those of one token are adjacent."""
        pixels = given["pixel_values"][0]
        channels, height, width = pixels.shape
        side = PATCH * self.merge
        cells = pixels.reshape(channels, height // side, self.merge, PATCH, width // side, self.merge, PATCH)
        return cells.permute(1, 4, 2, 5, 0, 3, 6).reshape(-1, channels * PATCH * PATCH).contiguous()

    def grid(self, given):
        """Rows and columns of patches."""
        return torch.tensor(given["pixel_values"].shape[-2:]) // PATCH

    def num_tokens(self, given):
        return int(self.grid(given).prod()) // self.merge**2

    def tokens(self, given):
        return [IMAGE] * self.num_tokens(given)

    def inputs(self, ids, images):
        """The arguments of the model for expanded ids."""
        given = {"input_ids": torch.tensor([ids])}
        if images:
            given["pixel_values"] = torch.cat([image["pixel_values"] for image in images])
        return given

    def positions(self, model, given):
        """Positions on three axes; models with one axis have none."""
        return None


class Qwen(Family):
    processor_class = Qwen2VLImageProcessor
    processor = {
        "patch_size": PATCH,
        "temporal_patch_size": 2,
        "merge_size": 2,
        **CLIP,
        "size": {"shortest_edge": 256, "longest_edge": 2048},
    }

    def patches(self, given):
        return given["pixel_values"]

    def grid(self, given):
        return given["image_grid_thw"][0, 1:]

    def encode(self, model, given):
        output = model.model.visual(given["pixel_values"], grid_thw=given["image_grid_thw"])
        return output.pooler_output, getattr(output, "deepstack_features", None) or []

    def inputs(self, ids, images):
        given = super().inputs(ids, images)
        given["mm_token_type_ids"] = torch.tensor([[int(i == IMAGE) for i in ids]]).int()
        if images:
            given["image_grid_thw"] = torch.cat([image["image_grid_thw"] for image in images])
        return given

    def positions(self, model, given):
        positions, _ = model.model.get_rope_index(
            given["input_ids"], given["mm_token_type_ids"], image_grid_thw=given.get("image_grid_thw")
        )
        return positions[:, 0].int().contiguous()


class Gemma3(Family):
    """An image has more tokens than the window of a sliding layer."""

    processor_class = Gemma3ImageProcessor
    processor = {
        "do_pan_and_scan": None,
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "resample": 2,
        "size": {"height": 32, "width": 32},
    }

    def encode(self, model, given):
        return model.model.get_image_features(given["pixel_values"]).pooler_output[0], []

    def inputs(self, ids, images):
        given = super().inputs(ids, images)
        given["token_type_ids"] = torch.tensor([[int(i == IMAGE) for i in ids]])
        return given


class Mistral3(Family):
    BREAK, END = 12, 13
    processor_class = PixtralImageProcessor
    processor = {
        "patch_size": {"height": PATCH, "width": PATCH},
        **CLIP,
        "resample": 3,
        "size": {"longest_edge": 40},
    }

    def prepare(self, pixels):
        # As PixtralProcessor calls it: with the size of a token.
        token = {"height": PATCH * self.merge, "width": PATCH * self.merge}
        return self.processor_class(**self.processor | {"patch_size": token})(images=[pixels], return_tensors="pt")

    def encode(self, model, given):
        features = model.model.get_image_features(given["pixel_values"], given["image_sizes"])
        return torch.cat(list(features.pooler_output)), []

    def tokens(self, given):
        rows, columns = (self.grid(given) // self.merge).tolist()
        tokens = ([IMAGE] * columns + [self.BREAK]) * rows
        return tokens[:-1] + [self.END]

    def inputs(self, ids, images):
        given = {"input_ids": torch.tensor([ids])}
        if images:
            sizes = [tuple(image["pixel_values"].shape[-2:]) for image in images]
            largest = [max(size[axis] for size in sizes) for axis in range(2)]
            given["image_sizes"] = torch.tensor(sizes)
            given["pixel_values"] = torch.stack(
                [
                    torch.nn.functional.pad(
                        image["pixel_values"][0], (0, largest[1] - size[1], 0, largest[0] - size[0])
                    )
                    for image, size in zip(images, sizes)
                ]
            )
        return given


class Gemma4(Family):
    BEGIN, END = 124, 123
    merge = 3
    processor_class = Gemma4ImageProcessor
    processor = {
        "do_normalize": False,
        "max_soft_tokens": 10,
        "patch_size": PATCH,
        "pooling_kernel_size": 3,
        "resample": 3,
    }

    def grid(self, given):
        columns, rows = (given["image_position_ids"][0].max(dim=0).values + 1).tolist()
        return torch.tensor([rows, columns])

    def patches(self, given):
        """With the tower's factor; the processor's rows follow each other, and end with padding."""
        rows, columns = self.grid(given).tolist()
        patches = 2 * (given["pixel_values"][0, : rows * columns] - 0.5)
        cells = patches.reshape(rows // self.merge, self.merge, columns // self.merge, self.merge, -1)
        return cells.permute(0, 2, 1, 3, 4).reshape(rows * columns, -1).contiguous()

    def encode(self, model, given):
        return model.model.get_image_features(given["pixel_values"], given["image_position_ids"]).pooler_output[0], []

    def tokens(self, given):
        return [self.BEGIN, *super().tokens(given), self.END]

    def inputs(self, ids, images):
        given = super().inputs(ids, images)
        given["mm_token_type_ids"] = torch.tensor([[int(i == IMAGE) for i in ids]])
        if images:
            given["image_position_ids"] = torch.cat([image["image_position_ids"] for image in images])
        return given


TOWER = {
    "depth": 3,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_heads": 2,
    "patch_size": PATCH,
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


SIZES = {
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "patch_size": PATCH,
}


def gemma3():
    config = gemma3_multimodal(
        rope_theta=None,
        num_hidden_layers=3,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        tie_word_embeddings=None,
    )
    tower = {"model_type": "siglip_vision_model", "image_size": 32, "vision_use_head": False}
    return config | {"mm_tokens_per_image": 16, "vision_config": tower | SIZES}


def mistral3_vision():
    tower = {"model_type": "pixtral", "image_size": 40, "head_dim": 16, "hidden_act": "silu", "rope_theta": 10000.0}
    return mistral3(ministral3("", sliding_window=None)) | {
        "vision_config": tower | SIZES,
        "spatial_merge_size": 2,
        "multimodal_projector_bias": True,
    }


def gemma4():
    """Embeddings per layer, clipped projections, standardized means."""
    config = gemma4_multimodal(
        num_hidden_layers=3,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        hidden_size_per_layer_input=8,
        use_bidirectional_attention="vision",
    )
    tower = {
        "model_type": "gemma4_vision",
        "num_key_value_heads": 2,
        "head_dim": 16,
        "pooling_kernel_size": 3,
        "position_embedding_size": 64,
        "use_clipped_linears": True,
        "standardize": True,
        "rope_parameters": {"rope_type": "axial", "rope_theta": 100.0},
    }
    tokens = {"boi_token_id": 124, "eoi_token_id": 123, "audio_token_id": 122, "video_token_id": 121}
    return config | tokens | {"vision_config": tower | SIZES}


# Family, config, and prefixes of names in memory and in the file.
CASES = {
    "vision-qwen3-vl": (Qwen(), qwen3_vl(), ()),
    "vision-qwen2-5-vl": (
        Qwen(),
        qwen2_5_vl(),
        (("model.visual.", "visual."), ("model.language_model.", "model.")),
    ),
    "vision-qwen3-5": (Qwen(), qwen3_5(), ()),
    # As published: "vision_tower.vision_model.".
    "vision-gemma3": (
        Gemma3(),
        gemma3(),
        (
            ("model.language_model.", "language_model.model."),
            ("model.vision_tower.", "vision_tower.vision_model."),
            ("model.multi_modal_projector.", "multi_modal_projector."),
        ),
    ),
    "vision-mistral3": (
        Mistral3(),
        mistral3_vision(),
        (
            ("model.language_model.", "language_model.model."),
            ("model.vision_tower.", "vision_tower."),
            ("model.multi_modal_projector.", "multi_modal_projector."),
            ("lm_head.", "language_model.lm_head."),
        ),
    ),
    "vision-gemma4": (Gemma4(), gemma4(), ()),
}
