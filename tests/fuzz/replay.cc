// Main function for fuzz targets without libFuzzer: runs each seed, then mutated copies of seeds, the same in
// every run. Sanitizers abort with a report if an input fails. The input's number is printed first; passed as
// an argument, it runs only that input.
//
//   fuzz_NAME SEED_FOLDER NUM_CHANGED [FIRST]
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

constexpr size_t kMaxBytes = 20000;

std::vector<Bytes> read_seeds(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
    if (entry.is_regular_file()) paths.push_back(entry.path());
  std::ranges::sort(paths);
  std::vector<Bytes> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    seeds.back().resize(std::min(seeds.back().size(), kMaxBytes));
  }
  return seeds;
}

size_t below(std::mt19937& random, size_t limit) {
  return limit == 0 ? 0 : std::uniform_int_distribution<size_t>(0, limit - 1)(random);
}

// Mutates valid input: changes a byte, or removes, repeats or inserts a range.
void change(Bytes& bytes, const std::vector<Bytes>& seeds, std::mt19937& random) {
  const size_t at = below(random, bytes.size()), length = 1 + below(random, bytes.size() - at);
  const auto begin = bytes.begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 6)) {
    case 0:
      if (!bytes.empty()) bytes[at] ^= static_cast<uint8_t>(1u << below(random, 8));
      break;
    case 1:
      if (!bytes.empty()) bytes[at] = static_cast<uint8_t>(below(random, 256));
      break;
    case 2:
      bytes.insert(begin, static_cast<uint8_t>(below(random, 256)));
      break;
    case 3:
      if (!bytes.empty())
        bytes.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(length, bytes.size() - at)));
      break;
    case 4: {
      const Bytes piece(begin, begin + static_cast<std::ptrdiff_t>(std::min(length, bytes.size() - at)));
      bytes.insert(begin, piece.begin(), piece.end());
      break;
    }
    default: {
      const Bytes& other = seeds[below(random, seeds.size())];
      const size_t from = below(random, other.size());
      const size_t count = below(random, other.size() - from + 1);
      bytes.insert(begin, other.begin() + static_cast<std::ptrdiff_t>(from),
                   other.begin() + static_cast<std::ptrdiff_t>(from + count));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: %s SEED_FOLDER NUM_CHANGED [FIRST]\n", argv[0]);
    return 2;
  }
  const std::vector<Bytes> seeds = read_seeds(argv[1]);
  if (seeds.empty()) {
    std::fprintf(stderr, "%s: no files\n", argv[1]);
    return 2;
  }
  const size_t first = argc == 4 ? std::stoul(argv[3]) : 0;
  const size_t num_inputs = argc == 4 ? first + 1 : seeds.size() + std::stoul(argv[2]);
  for (size_t i = first; i < num_inputs; ++i) {
    std::mt19937 random(static_cast<uint32_t>(i));
    Bytes input = seeds[i % seeds.size()];
    if (i >= seeds.size())
      for (size_t changes = 1 + below(random, 8); changes > 0; --changes) change(input, seeds, random);
    input.resize(std::min(input.size(), kMaxBytes));
    // Printed before the input runs, in case it crashes.
    std::fprintf(stderr, "\rinput %zu", i);
    LLVMFuzzerTestOneInput(input.data(), input.size());
  }
  std::fprintf(stderr, "\r");
  std::printf("%zu inputs, nothing found\n", num_inputs - first);
}
