#!/usr/bin/env python3
"""Writes tests/data/audio: small sound files with their samples, and log-mel spectrograms of transformers.

    pip install torch transformers numpy safetensors soundfile
    python3 scripts/make_audio_goldens.py

golden.safetensors contains for each file its samples as libsndfile decodes them, f32 [num_samples, channels], and its sample rate;
"log_mel.SAMPLES.MELS": frames 0, 97, 194, ... of the spectrogram of sound(SAMPLES), f32 [frames, mels], by the float64
implementation of WhisperFeatureExtractor.
"""

import pathlib

import numpy as np
import soundfile
from safetensors.numpy import save_file
from transformers import WhisperFeatureExtractor

from sounds import sound

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "tests/data/audio"
FRAME_STEP = 97
LENGTHS = [1600, 1, 15999, 480000, 480001, 1040000]
FILES = [("pcm-u8.wav", 8000, 1, "PCM_U8"), ("pcm-16-stereo.wav", 44100, 2, "PCM_16"), ("pcm-24.wav", 48000, 1, "PCM_24"),
         ("pcm-32.wav", 16000, 1, "PCM_32"), ("float.wav", 16000, 2, "FLOAT"), ("double.wav", 11025, 1, "DOUBLE"),
         ("mu-law.wav", 8000, 1, "ULAW"), ("stereo.flac", 22050, 2, "PCM_16"), ("mono-24.flac", 16000, 1, "PCM_24"),
         ("vorbis.ogg", 16000, 1, "VORBIS"), ("opus.ogg", 48000, 1, "OPUS"), ("layer-3.mp3", 16000, 1, "MPEG_LAYER_III")]


def log_mel(samples, num_mels):
    """Log-mel spectrogram of samples, [frames, mels], padded to 30 seconds."""
    extractor = WhisperFeatureExtractor(feature_size=num_mels)
    padded = np.zeros(max(len(samples), extractor.n_samples), np.float32)
    padded[: len(samples)] = samples
    return extractor._np_extract_fbank_features(padded[None], "cpu")[0].T.astype(np.float32)


def main():
    FOLDER.mkdir(exist_ok=True)
    goldens = {}
    for name, rate, channels, subtype in FILES:
        samples = np.stack([sound(rate // 9 + 77, seed) for seed in range(1, channels + 1)], -1)
        soundfile.write(FOLDER / name, samples, rate, subtype=subtype, format={"mp3": "MP3", "ogg": "OGG"}.get(name[-3:]))
        decoded, rate = soundfile.read(FOLDER / name, dtype="float32", always_2d=True)
        goldens[name] = decoded
        goldens[name + ".rate"] = np.array([rate], np.int32)
    for length in LENGTHS:
        for num_mels in (80, 128):
            if num_mels == 128 and length not in (15999, 1040000):
                continue
            goldens[f"log_mel.{length}.{num_mels}"] = np.ascontiguousarray(log_mel(sound(length), num_mels)[::FRAME_STEP])
    save_file(goldens, FOLDER / "golden.safetensors")


if __name__ == "__main__":
    main()
