// Sounds that scripts/sounds.py computes too, with the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attend::testing_support {

// A rising triangle wave, interrupted by silence, over quiet noise: [num_samples], multiples of 1 / 32768.
inline std::vector<float> sound(int64_t num_samples, int64_t seed = 1) {
  std::vector<float> samples;
  for (int64_t i = 0; i < num_samples; ++i) {
    const auto phase = static_cast<uint32_t>(i * 2000003 * seed + i * (i + 1) / 2 * 131);
    const uint32_t rising = phase < (uint32_t{1} << 31) ? phase : ~phase;
    const int32_t triangle = i / 6000 % 5 == 3 ? 0 : static_cast<int32_t>(rising >> 16) - 16384;
    auto noise = static_cast<uint32_t>(i + seed * 977);
    for (int round = 0; round < 2; ++round) noise = ((noise >> 16) ^ noise) * 0x45d9f3bu;
    samples.push_back(static_cast<float>(triangle + static_cast<int32_t>(noise >> 23) - 256) / 32768.0f);
  }
  return samples;
}

// A WAV file of 16-bit samples, one channel.
inline std::string wav_file(const std::vector<float>& samples, int sample_rate = 16000) {
  std::string file;
  const auto number = [&](uint32_t value, int num_bytes) {
    for (int i = 0; i < num_bytes; ++i) file += static_cast<char>(value >> (8 * i) & 0xff);
  };
  const auto data_bytes = static_cast<uint32_t>(2 * samples.size());
  file += "RIFF";
  number(36 + data_bytes, 4);
  file += "WAVEfmt ";
  number(16, 4);
  number(1, 2);  // PCM
  number(1, 2);  // channels
  number(static_cast<uint32_t>(sample_rate), 4);
  number(static_cast<uint32_t>(2 * sample_rate), 4);
  number(2, 2);   // bytes of a frame
  number(16, 2);  // bits
  file += "data";
  number(data_bytes, 4);
  for (const float sample : samples)
    number(static_cast<uint32_t>(static_cast<int32_t>(sample * 32768.0f)), 2);
  return file;
}

}  // namespace attend::testing_support
