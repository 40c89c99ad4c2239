// Log-mel spectrogram: the input of Whisper's encoder (arXiv 2212.04356, section 2.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

struct LogMelConfig {
  int sample_rate = 16000;  // Hz
  int fft_size = 400;       // samples of a frame
  int hop = 160;            // samples between frames
  int num_mels = 80;

  bool operator==(const LogMelConfig&) const = default;
};

struct Spectrogram {
  int num_mels = 0;
  std::vector<float> values = {};  // [num_frames, num_mels]

  int64_t num_frames() const { return num_mels > 0 ? std::ssize(values) / num_mels : 0; }
};

// Computes what WhisperFeatureExtractor of transformers computes, in float64, for samples that zeros extend
// to `min_samples`: frame i is centered at sample i hop, with reflected samples at both ends, and multiplied
// by a periodic Hann window. A value x is log10(max(x, 1e-10)) of the power in a mel filter of 0 to 8000 Hz
// (Slaney's scale, filters of equal area), at least the maximum of all values - 8, and returned as (x + 4) /
// 4. The number of frames is the number of samples / hop. Throws Error(kInvalidArgument) unless there are
// more samples than half a frame.
Spectrogram log_mel(std::span<const float> samples, int64_t min_samples, const LogMelConfig& config);

}  // namespace attend
#pragma GCC visibility pop
