#include "attend/cli/options/flags.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <sstream>
#include <system_error>
#include <type_traits>

#include "attend/base/error.h"
#include "attend/base/printable.h"

namespace attend::cli {
namespace {

constexpr size_t kMaxShownBytes = 60;

// Parses `text` as a number in decimal digits. Returns false if any other text is left.
template <class Number>
bool read_number(std::string_view text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(number)) return false;
  return error == std::errc() && stop == end;
}

// Returns "an integer from 1 to 1024", "a number from 0 to 1", "a number above 0 and at most 1", "a number".
template <class Number>
std::string describe(Range<Number> range) {
  constexpr bool kWhole = std::is_integral_v<Number>;
  std::ostringstream text;
  text << (kWhole ? "an integer" : "a number");
  if (range.above_lowest)
    text << " above " << range.lowest << " and at most " << range.highest;
  else if (kWhole || range.highest != std::numeric_limits<Number>::max())
    text << " from " << range.lowest << " to " << range.highest;
  return text.str();
}

template <class Number>
bool holds(Range<Number> range, Number number) {
  return (range.above_lowest ? number > range.lowest : number >= range.lowest) && number <= range.highest;
}

}  // namespace

template <class Number>
Number parse_number(std::string_view flag, std::string_view text, Range<Number> range) {
  Number number{};
  require(read_number(text, number) && holds(range, number), flag, " '", elide(text, kMaxShownBytes),
          "': expected ", describe(range), " in decimal digits", range.or_else);
  return number;
}

template int parse_number<int>(std::string_view, std::string_view, Range<int>);
template int64_t parse_number<int64_t>(std::string_view, std::string_view, Range<int64_t>);
template uint64_t parse_number<uint64_t>(std::string_view, std::string_view, Range<uint64_t>);
template float parse_number<float>(std::string_view, std::string_view, Range<float>);
template double parse_number<double>(std::string_view, std::string_view, Range<double>);

std::string_view first_name(std::string_view flags) { return flags.substr(0, flags.find(',')); }

CLI::Option* add_numbers(CLI::App& app, const std::string& flags, std::vector<int>& values,
                         const std::string& range, const std::string& help) {
  const std::string name(first_name(flags));
  std::string defaults;
  for (const int value : values) defaults += (defaults.empty() ? "" : ",") + std::to_string(value);
  return app
      .add_option_function<std::vector<std::string>>(
          flags,
          [&values, name, range](const std::vector<std::string>& texts) {
            values.clear();
            for (const std::string& text : texts)
              for (size_t at = 0; at <= text.size();) {
                const size_t comma = std::min(text.find(',', at), text.size());
                require(read_number(std::string_view(text).substr(at, comma - at), values.emplace_back()),
                        name, " '", elide(text, kMaxShownBytes),
                        "': expected integers with commas between them, each ", range);
                at = comma + 1;
              }
          },
          help)
      ->default_str(defaults)
      ->type_name("NUMBER,NUMBER");
}

bool given(const CLI::App& app, const std::string& flag) {
  const CLI::Option* option = app.get_option_no_throw(flag);
  return option != nullptr && option->count() > 0;
}

CLI::Option* add_text(CLI::App& app, const std::string& flags, std::string& value, const std::string& help) {
  const std::string name(first_name(flags));
  CLI::Option* option = app.add_option_function<std::string>(
      flags,
      [&value, name](const std::string& text) {
        require(!text.empty(), name, " '': expected a non-empty text");
        value = text;
      },
      help);
  if (!value.empty()) option->default_str(value);
  return option->type_name("TEXT");
}

CLI::Option* add_repeated(CLI::App& app, const std::string& flags, std::vector<std::string>& values,
                          const std::string& help) {
  const std::string name(first_name(flags));
  return app
      .add_option_function<std::string>(
          flags,
          [&values, name](const std::string& value) {
            require(!value.empty(), name, " '': expected a non-empty text");
            values.push_back(value);
          },
          help)
      ->take_all()
      ->trigger_on_parse();
}

std::vector<std::string> split_lists(const std::vector<std::string>& values) {
  std::vector<std::string> items;
  for (const std::string& value : values)
    for (size_t at = 0; at <= value.size();) {
      const size_t comma = std::min(value.find(',', at), value.size());
      const std::string_view item = std::string_view(value).substr(at, comma - at);
      const size_t first = item.find_first_not_of(" []\""), last = item.find_last_not_of(" []\"");
      if (first != item.npos) items.emplace_back(item.substr(first, last - first + 1));
      at = comma + 1;
    }
  return items;
}

void check_writable(std::string_view flag, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path file(path), folder = file.has_parent_path() ? file.parent_path() : ".";
  std::error_code ignored;
  require(!std::filesystem::is_directory(file, ignored), flag, " ", path,
          ": is a directory: expected a file");
  // A cycle of links or a name that is too long also fails to open, but cannot be created.
  const bool is_new = access(file.c_str(), F_OK) != 0 && errno == ENOENT;
  require(access(is_new ? folder.c_str() : file.c_str(), W_OK) == 0, flag, " ", path,
          ": cannot be written: ", std::strerror(errno));
}

}  // namespace attend::cli
