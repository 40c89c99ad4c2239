// Audio: decoded sound, and the decoder and the resampling that produce it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#pragma GCC visibility push(default)
namespace attend {

// One channel of samples; full scale is -1 to 1.
struct Audio {
  int sample_rate = 0;  // Hz
  std::vector<float> samples = {};

  double seconds() const { return static_cast<double>(samples.size()) / sample_rate; }
};

struct AudioLimits {
  double max_seconds = 2 * 3600.0;  // a longer file is rejected after this duration is decoded
};

// Decodes WAV (PCM of 8 to 32 bits, float, A-law, mu-law, ADPCM), FLAC, Ogg (Vorbis, Opus) or MP3. Channels
// are averaged. Throws Error(kUnsupported) for another format, Error(kCorruptFile) for damaged data or
// samples that are not finite, and Error(kInvalidArgument) for audio without samples or beyond the limits.
Audio decode_audio(std::span<const std::byte> file, const AudioLimits& limits = {});

// Returns the audio with another sample rate, by a linear-phase low-pass filter of 20 bits (libsoxr's high
// quality). Throws Error(kInvalidArgument) for a rate below 1.
Audio resample(Audio audio, int sample_rate);

}  // namespace attend
#pragma GCC visibility pop
