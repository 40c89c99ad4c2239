#!/usr/bin/env python3
"""Writes tests/data/images: small image files, and their pixels as image processors of transformers read them.

    pip install torch torchvision transformers pillow safetensors
    python3 scripts/make_image_goldens.py

golden.safetensors contains for each file its pixels, uint8 [height, width, 3]; for 16-bit gray, which Pillow saturates,
the high bytes. "resize.FILTER.HEIGHTxWIDTH" are the pixels of rgb.png that torchvision resizes on a CPU, and
"resize.FILTER.noise.HxW" those of "noise".
"""

import pathlib
import struct
import zlib

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from safetensors.numpy import save_file
from torchvision.transforms.v2 import InterpolationMode
from torchvision.transforms.v2 import functional as F
from transformers.image_transforms import convert_to_rgb

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/images"
ORIENTATION = 0x0112


def drawing(width, height, channels):
    """Smooth areas, edges and noise, so that chroma upsampling, filters and palettes all show."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    generator = np.random.default_rng(7)
    planes = []
    for c in range(channels):
        plane = 128 + 100 * np.sin(x / (3 + c)) * np.cos(y / (5 + 2 * c)) + generator.normal(0, 6, (height, width))
        plane[(x - width / 2) ** 2 + (y - height / 3) ** 2 < 40 + 20 * c] = 250 - 80 * c
        planes.append(plane)
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def write_png(path, pixels, bits, color_type, interlaced=False):
    """Writes bit depths and interlacing that Pillow does not write. pixels: [height, width, channels]."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    def rows(part):
        return b"".join(b"\0" + (row.astype(">u2").tobytes() if bits == 16 else row.astype(np.uint8).tobytes()) for row in part)

    height, width = pixels.shape[:2]
    adam7 = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    passes = [pixels[y::dy, x::dx] for y, x, dy, dx in adam7] if interlaced else [pixels]
    data = b"".join(rows(part) for part in passes if part.size)
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, int(interlaced))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def exif(orientation):
    data = PIL.Image.Exif()
    data[ORIENTATION] = orientation
    return data.tobytes()


def write_files():
    FOLDER.mkdir(exist_ok=True)
    rgb = PIL.Image.fromarray(drawing(43, 31, 3))
    small = PIL.Image.fromarray(drawing(13, 9, 3))
    rgba = drawing(21, 16, 4)
    rgba[:4, :, 3] = 0
    rgba[-4:, :, 3] = 255
    gray = PIL.Image.fromarray(drawing(21, 16, 1)[..., 0])
    rgb.save(FOLDER / "rgb.jpg", quality=80, subsampling=2)
    rgb.save(FOLDER / "wide-chroma.jpg", quality=60, subsampling=1)
    rgb.save(FOLDER / "progressive.jpg", quality=85, progressive=True)
    gray.save(FOLDER / "gray.jpg")
    small.convert("CMYK").save(FOLDER / "cmyk.jpg")
    for orientation in range(2, 9):
        small.save(FOLDER / f"orientation-{orientation}.jpg", exif=exif(orientation))
    rgb.save(FOLDER / "rgb.png")
    gray.save(FOLDER / "gray.png")
    PIL.Image.fromarray(rgba).save(FOLDER / "rgba.png")
    PIL.Image.fromarray(rgba[..., [0, 3]], "LA").save(FOLDER / "gray-alpha.png")
    rgb.quantize(16).save(FOLDER / "palette.png")
    rgb.quantize(16).save(FOLDER / "palette-transparent.png", transparency=3)
    gray.convert("1").save(FOLDER / "one-bit.png")
    gray.save(FOLDER / "gray-transparent.png", transparency=int(np.asarray(gray)[8, 8]))
    small.save(FOLDER / "orientation-6.png", exif=exif(6))
    wide = drawing(11, 9, 4).astype(np.uint16) * 257 - 55
    write_png(FOLDER / "gray-16.png", wide[..., :1], 16, 0)
    write_png(FOLDER / "rgb-16.png", wide[..., :3], 16, 2)
    write_png(FOLDER / "rgba-16.png", wide, 16, 6)
    write_png(FOLDER / "interlaced.png", drawing(19, 14, 3), 8, 2, interlaced=True)
    PIL.Image.fromarray(drawing(1, 1, 3)).save(FOLDER / "one-pixel.png")
    rgb.save(FOLDER / "lossy.webp", quality=70)
    PIL.Image.fromarray(rgba).save(FOLDER / "alpha.webp", lossless=True)
    small.save(FOLDER / "orientation-8.webp", exif=exif(8), lossless=True)
    frames = [PIL.Image.fromarray(drawing(13 + 0 * i, 9, 3) // (i + 1)) for i in range(3)]
    frames[0].save(FOLDER / "animated.webp", save_all=True, append_images=frames[1:], lossless=True)


def expected(path):
    image = PIL.Image.open(path)
    if path.name == "gray-16.png":
        return np.repeat((np.asarray(image).astype(np.uint32) >> 8).astype(np.uint8)[..., None], 3, -1)
    return convert_to_rgb(PIL.ImageOps.exif_transpose(image), return_numpy=True)


def resized(pixels, height, width, mode):
    tensor = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)
    out = F.resize(tensor, [height, width], interpolation=mode, antialias=True)
    return np.ascontiguousarray(out.permute(1, 2, 0).numpy())


def main():
    write_files()
    golden = {path.name: expected(path) for path in sorted(FOLDER.iterdir()) if path.suffix in (".jpg", ".png", ".webp")}
    noise = np.random.default_rng(11).integers(0, 256, (29, 37, 3), dtype=np.uint8)
    golden["noise"] = noise
    sizes = [(31, 60), (45, 43), (14, 14), (7, 80), (33, 47), (29, 37), (28, 37), (58, 74), (1, 1), (3, 50)]
    for name, mode in (("bicubic", InterpolationMode.BICUBIC), ("bilinear", InterpolationMode.BILINEAR)):
        for height, width in sizes[:: 1 if name == "bicubic" else 2]:
            golden[f"resize.{name}.{height}x{width}"] = resized(golden["rgb.png"], height, width, mode)
            golden[f"resize.{name}.noise.{height}x{width}"] = resized(noise, height, width, mode)
    save_file(golden, FOLDER / "golden.safetensors")


if __name__ == "__main__":
    main()
