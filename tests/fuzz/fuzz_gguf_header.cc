// Input: a GGUF file, of which the header, the config and the tokenizer are read. The first byte is the
// number of bytes, in units of 64, that the first read returns.
#include <algorithm>

#include "attend/checkpoint/gguf/gguf_config.h"
#include "attend/checkpoint/gguf/gguf_file.h"
#include "attend/checkpoint/gguf/gguf_tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace attend::fuzz {
namespace {

bool is_in(std::string_view part, std::string_view bytes) {
  return part.empty() ||
         (part.data() >= bytes.data() && part.data() + part.size() <= bytes.data() + bytes.size());
}

// Properties that GgufFile and the loader rely on.
void check(const GgufHeader& header, std::string_view bytes) {
  uint64_t end = 0;
  for (const GgufTensorInfo& tensor : header.tensors) {
    expect(is_in(tensor.name, bytes));
    expect(tensor.begin >= end && tensor.end > tensor.begin);
    end = tensor.end;
    uint64_t num_elements = 1;
    for (const int64_t extent : tensor.shape) num_elements *= static_cast<uint64_t>(extent);
    const auto block = static_cast<uint64_t>(tensor.type->block_elements);
    expect(num_elements % block == 0);
    expect(num_elements / block * static_cast<uint64_t>(tensor.type->block_bytes) ==
           tensor.end - tensor.begin);
  }
  expect(header.tensors.empty() || header.data_begin + end <= bytes.size());
  for (const GgufField& field : header.fields) {
    expect(is_in(field.key, bytes) && !field.key.empty());
    if (const auto* array = std::get_if<GgufArray>(&field.value)) {
      expect(is_in(array->bytes, bytes));
      for (const std::string_view text : array->strings) expect(is_in(text, bytes));
    }
  }
}

}  // namespace
}  // namespace attend::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace attend;
  if (size == 0) return 0;
  const std::string_view bytes = fuzz::text_of(data, size).substr(1);
  fuzz::may_reject([&] {
    const std::string_view first = bytes.substr(0, std::min<size_t>(bytes.size(), data[0] * size_t{64}));
    (void)parse_gguf_header(first, bytes.size(), "some.gguf");
    const auto header = parse_gguf_header(bytes, bytes.size(), "some.gguf");
    fuzz::expect(header.has_value());
    fuzz::check(*header, bytes);
  });
  fuzz::may_reject([&] {
    const GgufFile file{std::string(bytes), "some.gguf"};
    fuzz::may_reject([&] { (void)gguf_config({&file, 1}); });
    fuzz::may_reject([&] { (void)gguf_tokenizer(file); });
    (void)gguf_tokenizer_config(file);
  });
  return 0;
}
