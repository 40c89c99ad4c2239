#include "attend/text/chat_template/values/from_json.h"

#include <cstdint>

#include "attend/base/error.h"
#include "attend/checkpoint/parse_json.h"

namespace attend::chat {
namespace {

Value to_value(const OrderedJson& json, Text::From from) {
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value::boolean(json.get<bool>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > INT64_MAX) return Value::real(json.get<double>());
      [[fallthrough]];
    case OrderedJson::value_t::number_integer:
      return Value::integer(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value::real(json.get<double>());
    case OrderedJson::value_t::string:
      return Text(json.get_ref<const std::string&>(), from);
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) items.push_back(to_value(item, from));
      return Value::list(std::move(items));
    }
    case OrderedJson::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& item : json.items())
        items.emplace_back(Text(item.key(), from), to_value(item.value(), from));
      return Value::dict(std::move(items));
    }
    default:
      return Value::none();
  }
}

}  // namespace

Value from_json(std::string_view json, Text::From from) {
  try {
    return to_value(parse_ordered_json(json, "JSON text"), from);
  } catch (const Error& error) {
    complain(std::string(error.what()));
  }
}

}  // namespace attend::chat
