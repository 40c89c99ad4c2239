#include "attend/text/tokenizer/pipeline/metaspace.h"

namespace attend::tokenizer {

Metaspace::Metaspace(const JsonNode& node) {
  replacement = node.at("replacement").character();
  if (const auto scheme = node.find("prepend_scheme")) {
    const std::string& name = scheme->string();
    if (name == "first") {
      prepend = Prepend::kFirst;
    } else if (name == "never") {
      prepend = Prepend::kNever;
    } else if (name != "always") {
      scheme->corrupt("\"", name, "\" is none of always, first and never");
    }
  }
  // The older way to say "never" and "always"; both may stand in a file, and must agree.
  if (!node.boolean_or("add_prefix_space", true) && prepend != Prepend::kNever) {
    node.corrupt("add_prefix_space false contradicts prepend_scheme; it needs \"never\"");
  }
  split = node.boolean_or("split", true);
}

}  // namespace attend::tokenizer
