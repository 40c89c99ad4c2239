#include "attend/serve/protocols/responses/custom_input.h"

#include <optional>

#include "attend/serve/json/fields.h"
#include "attend/serve/protocols/responses/input_items.h"

namespace attend::serve {
namespace {

// Finds the text of one key of the outermost object. It reads events instead of a Json, since it runs on the
// I/O thread.
class InputFinder final : public nlohmann::json_sax<Json> {
 public:
  std::optional<std::string> found() const { return found_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool string(string_t& value) override {
    if (depth_ == 1 && is_input_) found_ = value;
    return true;
  }
  bool start_object(size_t) override {
    ++depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) is_input_ = key == kCustomInput;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(size_t) override {
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    found_.reset();
    return false;
  }

 private:
  std::optional<std::string> found_;
  int depth_ = 0;
  bool is_input_ = false;  // the last key of the outermost object is kCustomInput
};

}  // namespace

std::string custom_input(std::string_view arguments) {
  InputFinder finder;
  Json::sax_parse(arguments, &finder);
  return finder.found().value_or(std::string(arguments));
}

}  // namespace attend::serve
