#include "attend/serve/protocols/random_id.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "attend/base/error.h"

namespace attend::serve {

std::string random_id(std::string_view prefix, int num_digits) {
  std::array<uint64_t, 2> words = {};
  require(num_digits > 0 && num_digits <= 32, "num_digits ", num_digits, ": expected 1 to 32");
  // std::random_device executes an instruction that takes 40 us on some virtual machines.
  ssize_t num_bytes = 0;
  do num_bytes = getrandom(words.data(), sizeof(words), 0);
  while (num_bytes < 0 && errno == EINTR);
  ensure(num_bytes == static_cast<ssize_t>(sizeof(words)), "getrandom returned ", num_bytes);
  const std::string digits = fmt::format("{:016x}{:016x}", words[0], words[1]);
  return std::string(prefix) + digits.substr(0, static_cast<size_t>(num_digits));
}

}  // namespace attend::serve
