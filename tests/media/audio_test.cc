#include "attend/media/audio.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numbers>
#include <string>

#include "attend/checkpoint/hf/safetensors.h"
#include "attend/media/log_mel.h"
#include "tests/support/error_message.h"
#include "tests/support/sounds.h"

namespace attend {
namespace {

using testing::HasSubstr;
using testing_support::error_message;
using testing_support::sound;
using testing_support::wav_file;

std::filesystem::path audio_folder() { return std::filesystem::path(ATTEND_SOURCE_DIR) / "tests/data/audio"; }

std::string read_file(const std::string& name) {
  std::ifstream file(audio_folder() / name, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes(const std::string& file) { return std::as_bytes(std::span(file)); }

std::vector<std::string> audio_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(audio_folder()))
    if (entry.path().extension() != ".safetensors") names.push_back(entry.path().filename().string());
  return names;
}

TEST(DecodeAudio, HasTheSamplesOfTheGoldens) {
  const SafetensorsFile goldens(audio_folder() / "golden.safetensors");
  const std::vector<std::string> names = audio_names();
  ASSERT_GE(names.size(), 12u);
  for (const std::string& name : names) {
    const Audio audio = decode_audio(bytes(read_file(name)));
    const Tensor expected = goldens.tensor(name), rate = goldens.tensor(name + ".rate");
    EXPECT_EQ(audio.sample_rate, rate.span<const int32_t>()[0]) << name;
    ASSERT_EQ(std::ssize(audio.samples), expected.shape(0)) << name;
    // Decoders of lossy formats may round differently.
    const bool is_lossy = name.ends_with("ogg") || name.ends_with("mp3");
    for (int64_t i = 0; i < expected.shape(0); ++i) {
      float mean = 0.0f;
      for (int64_t channel = 0; channel < expected.shape(1); ++channel)
        mean += expected.view()[i].as<const float>()[channel] / static_cast<float>(expected.shape(1));
      ASSERT_NEAR(audio.samples[static_cast<size_t>(i)], mean, is_lossy ? 1e-3f : 1e-7f) << name << " " << i;
    }
  }
}

TEST(DecodeAudio, RejectsTruncatedHeaders) {
  for (const std::string& name : audio_names()) {
    const std::string file = read_file(name);
    for (const size_t size : {size_t{12}, size_t{20}, size_t{40}}) {
      try {
        (void)decode_audio(bytes(file.substr(0, size)));
        ADD_FAILURE() << name << " with " << size << " of " << file.size() << " bytes was decoded";
      } catch (const Error& error) {
        EXPECT_NE(error.code(), ErrorCode::kInternal) << name << ": " << error.what();
        EXPECT_THAT(error.what(), HasSubstr(" audio ")) << name;
      }
    }
  }
}

TEST(DecodeAudio, RejectsOtherFilesAndAudioWithoutSamples) {
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [] { (void)decode_audio({}); }),
              HasSubstr("audio of 0 bytes: not a WAV, FLAC"));
  const std::string text = "not sound at all";
  EXPECT_THAT(error_message(ErrorCode::kUnsupported, [&] { (void)decode_audio(bytes(text)); }),
              HasSubstr("audio of 16 bytes: not a"));
  const std::string empty = wav_file({});
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [&] { (void)decode_audio(bytes(empty)); }),
              HasSubstr("WAV audio of 44 bytes: no samples"));
}

TEST(DecodeAudio, RejectsAudioBeyondTheLimit) {
  const std::string file = wav_file(std::vector<float>(16001));
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument,
                            [&] { (void)decode_audio(bytes(file), {.max_seconds = 1.0}); }),
              HasSubstr("WAV audio is longer than 1 seconds"));
  EXPECT_EQ(decode_audio(bytes(file), {.max_seconds = 1.1}).samples.size(), 16001u);
}

TEST(DecodeAudio, RejectsSamplesThatAreNotFinite) {
  std::string file = read_file("float.wav");
  const float infinity = std::numeric_limits<float>::infinity();
  std::memcpy(file.data() + file.size() - 4, &infinity, 4);
  EXPECT_THAT(error_message(ErrorCode::kCorruptFile, [&] { (void)decode_audio(bytes(file)); }),
              HasSubstr("is not finite"));
}

TEST(Resample, KeepsTonesBelowTheNewBand) {
  constexpr double kHz = 1234.5;
  for (const int rate : {8000, 11025, 22050, 44100, 48000}) {
    Audio audio{.sample_rate = rate};
    for (int i = 0; i < rate; ++i)
      audio.samples.push_back(static_cast<float>(0.5 * std::sin(2.0 * std::numbers::pi * kHz * i / rate)));
    const Audio out = resample(audio, 16000);
    EXPECT_EQ(out.sample_rate, 16000);
    EXPECT_NEAR(out.seconds(), 1.0, 1e-3) << rate;
    // Filters have transients at the ends.
    for (size_t i = 1000; i + 1000 < out.samples.size(); ++i)
      ASSERT_NEAR(out.samples[i],
                  0.5 * std::sin(2.0 * std::numbers::pi * kHz * static_cast<double>(i) / 16000), 1e-4)
          << rate << " " << i;
  }
}

TEST(LogMel, HasTheValuesOfTheGoldens) {
  const SafetensorsFile goldens(audio_folder() / "golden.safetensors");
  constexpr int64_t kFrameStep = 97;
  int num_cases = 0;
  for (const TensorEntry& entry : goldens.entries()) {
    const std::string& name = entry.name;
    if (!name.starts_with("log_mel.")) continue;
    ++num_cases;
    const Tensor expected = goldens.tensor(name);
    const int64_t num_samples = std::stoll(name.substr(8));
    const Spectrogram mel =
        log_mel(sound(num_samples), 480000, {.num_mels = static_cast<int>(expected.shape(1))});
    EXPECT_EQ(mel.num_frames(), std::max<int64_t>(480000, num_samples) / 160);
    ASSERT_EQ(expected.shape(0), (mel.num_frames() + kFrameStep - 1) / kFrameStep);
    for (int64_t i = 0; i < expected.shape(0); ++i)
      for (int64_t j = 0; j < expected.shape(1); ++j)
        ASSERT_NEAR(mel.values[static_cast<size_t>(i * kFrameStep * mel.num_mels + j)],
                    expected.view()[i].as<const float>()[j], 1e-5f)
            << name << ", frame " << i * kFrameStep << ", mel " << j;
  }
  EXPECT_GE(num_cases, 8);
}

TEST(LogMel, RejectsLessThanHalfAFrame) {
  EXPECT_THAT(error_message(ErrorCode::kInvalidArgument, [] { (void)log_mel(sound(200), 0, {}); }),
              HasSubstr("audio of 200 samples"));
}

}  // namespace
}  // namespace attend
