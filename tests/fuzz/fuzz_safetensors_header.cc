// Input: the start of a safetensors file: 8 bytes (here the length of the data), then the header.
#include <cstring>

#include "attend/checkpoint/hf/safetensors_header.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

// Properties that SafetensorsFile and the loader rely on.
void check(const std::vector<TensorEntry>& entries, uint64_t data_bytes) {
  uint64_t end = 0;
  for (const TensorEntry& entry : entries) {
    expect(entry.begin == end && entry.end >= entry.begin);
    end = entry.end;
    if (!entry.dtype) continue;
    uint64_t bytes = size_of(*entry.dtype);
    for (const int64_t extent : entry.shape) {
      expect(extent >= 0);
      bytes *= static_cast<uint64_t>(extent);
    }
    expect(bytes == entry.end - entry.begin);
  }
  expect(end == data_bytes);
}

}  // namespace
}  // namespace attend::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  uint64_t data_bytes = 0;
  if (size < sizeof data_bytes) return 0;
  std::memcpy(&data_bytes, data, sizeof data_bytes);
  const std::string_view header = fuzz::text_of(data, size).substr(sizeof data_bytes);
  fuzz::may_reject(
      [&] { fuzz::check(parse_safetensors_header(header, data_bytes, "some.safetensors"), data_bytes); });
  return 0;
}
