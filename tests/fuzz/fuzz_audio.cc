// Input: a sound file. It must not be longer than a small limit.
#include <cmath>

#include "attend/media/audio.h"
#include "tests/fuzz/fuzz.h"

// libsndfile 1.2.0 does not free the header of a damaged Ogg Vorbis file.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:vorbis_info_init\n";
}  // NOLINT: LeakSanitizer's name

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(data), size);
  constexpr AudioLimits kLimits{.max_seconds = 2.0};
  fuzz::may_reject([&] {
    const Audio audio = decode_audio(file, kLimits);
    fuzz::expect(!audio.samples.empty() && audio.seconds() <= kLimits.max_seconds);
    for (const float sample : audio.samples) fuzz::expect(std::isfinite(sample));
    fuzz::expect(resample(audio, 16000).sample_rate == 16000);
  });
  return 0;
}
