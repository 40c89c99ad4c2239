#include "attend/media/audio.h"

#include <sndfile.h>
#include <soxr.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "attend/base/error.h"

namespace attend {
namespace {

constexpr int kMinRate = 1000, kMaxRate = 768000;
constexpr int kMaxChannels = 32;

struct AudioFormat {
  std::string_view name;
  std::string_view signature;  // first bytes
};

// Other formats of libsndfile are old or rare, and its decoders for them have had more security defects.
constexpr AudioFormat kFormats[] = {{"WAV", "RIFF"},  {"WAV", "RF64"}, {"WAV", "RIFX"},
                                    {"FLAC", "fLaC"}, {"Ogg", "OggS"}, {"MP3", "ID3"}};

bool starts_with(std::span<const std::byte> file, std::string_view signature) {
  return file.size() >= signature.size() && std::memcmp(file.data(), signature.data(), signature.size()) == 0;
}

std::string_view find_format(std::span<const std::byte> file) {
  for (const AudioFormat& format : kFormats)
    if (starts_with(file, format.signature)) return format.name;
  // Frame of MPEG audio, layer III: 11 bits of synchronization, a version, and the layer.
  if (file.size() >= 2 && file[0] == std::byte{0xff} && (file[1] & std::byte{0xe6}) == std::byte{0xe2})
    return "MP3";
  fail(ErrorCode::kUnsupported, "audio of ", file.size(),
       " bytes: not a WAV, FLAC, Ogg or MP3 file according to its first bytes");
}

// File in memory, for libsndfile.
struct MemoryFile {
  std::span<const std::byte> bytes;
  sf_count_t position = 0;
};

sf_count_t size_of_file(void* file) { return std::ssize(static_cast<MemoryFile*>(file)->bytes); }

sf_count_t seek_in_file(sf_count_t offset, int whence, void* user) {
  auto& file = *static_cast<MemoryFile*>(user);
  const sf_count_t size = std::ssize(file.bytes);
  const sf_count_t base = whence == SEEK_CUR ? file.position : whence == SEEK_END ? size : 0;
  // Written without an overflow of base + offset.
  file.position = offset < -base ? 0 : offset > size - base ? size : base + offset;
  return file.position;
}

sf_count_t read_from_file(void* to, sf_count_t count, void* user) {
  auto& file = *static_cast<MemoryFile*>(user);
  const sf_count_t num_read = std::clamp<sf_count_t>(std::ssize(file.bytes) - file.position, 0, count);
  if (num_read > 0) std::memcpy(to, file.bytes.data() + file.position, static_cast<size_t>(num_read));
  file.position += num_read;
  return num_read;
}

sf_count_t write_nothing(const void*, sf_count_t, void*) { return 0; }

sf_count_t position_in_file(void* file) { return static_cast<MemoryFile*>(file)->position; }

struct CloseSound {
  void operator()(SNDFILE* sound) const { sf_close(sound); }
};

}  // namespace

Audio decode_audio(std::span<const std::byte> file, const AudioLimits& limits) {
  const std::string_view format = find_format(file);
  MemoryFile memory{file};
  SF_VIRTUAL_IO io{.get_filelen = size_of_file,
                   .seek = seek_in_file,
                   .read = read_from_file,
                   .write = write_nothing,
                   .tell = position_in_file};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, CloseSound> sound(sf_open_virtual(&io, SFM_READ, &info, &memory));
  if (!sound)
    fail(ErrorCode::kCorruptFile, format, " audio of ", file.size(), " bytes: ", sf_strerror(nullptr));
  if (info.samplerate < kMinRate || info.samplerate > kMaxRate)
    fail(ErrorCode::kUnsupported, format, " audio with ", info.samplerate, " samples per second: ", kMinRate,
         " to ", kMaxRate, " are accepted");
  if (info.channels < 1 || info.channels > kMaxChannels)
    fail(ErrorCode::kUnsupported, format, " audio with ", info.channels, " channels: 1 to ", kMaxChannels,
         " are accepted");

  Audio audio{.sample_rate = info.samplerate};
  const auto max_samples = static_cast<size_t>(limits.max_seconds * info.samplerate);
  const auto channels = static_cast<size_t>(info.channels);
  constexpr size_t kFrames = 4096;
  std::vector<float> frames(kFrames * channels);
  for (;;) {
    const auto num_read =
        static_cast<size_t>(std::max<sf_count_t>(0, sf_readf_float(sound.get(), frames.data(), kFrames)));
    if (num_read == 0) break;
    require(audio.samples.size() + num_read <= max_samples, format, " audio is longer than ",
            limits.max_seconds, " seconds, which is the limit");
    for (size_t i = 0; i < num_read; ++i) {
      float sum = 0.0f;
      for (size_t channel = 0; channel < channels; ++channel) sum += frames[i * channels + channel];
      if (!std::isfinite(sum))
        fail(ErrorCode::kCorruptFile, format, " audio: sample ", audio.samples.size(), " is not finite");
      audio.samples.push_back(sum / static_cast<float>(channels));
    }
  }
  if (sf_error(sound.get()) != SF_ERR_NO_ERROR)
    fail(ErrorCode::kCorruptFile, format, " audio of ", file.size(), " bytes: after ", audio.samples.size(),
         " samples: ", sf_strerror(sound.get()));
  require(!audio.samples.empty(), format, " audio of ", file.size(), " bytes: no samples");
  return audio;
}

Audio resample(Audio audio, int sample_rate) {
  require(sample_rate >= 1 && audio.sample_rate >= 1, "sample rate ", sample_rate, " from ",
          audio.sample_rate, ": expected at least 1");
  if (audio.sample_rate == sample_rate) return audio;
  const double ratio = static_cast<double>(sample_rate) / audio.sample_rate;
  const auto length =
      static_cast<size_t>(std::max(1.0, std::ceil(static_cast<double>(audio.samples.size()) * ratio)));
  Audio out{.sample_rate = sample_rate, .samples = std::vector<float>(length)};
  size_t num_written = 0;
  const soxr_error_t error =
      soxr_oneshot(audio.sample_rate, sample_rate, 1, audio.samples.data(), audio.samples.size(), nullptr,
                   out.samples.data(), length, &num_written, nullptr, nullptr, nullptr);
  if (error != nullptr) fail(ErrorCode::kOutOfMemory, "resampling to ", sample_rate, " Hz: ", error);
  out.samples.resize(std::max<size_t>(1, num_written));
  return out;
}

}  // namespace attend
