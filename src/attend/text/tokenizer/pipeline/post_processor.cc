#include "attend/text/tokenizer/pipeline/post_processor.h"

#include <algorithm>

#include "attend/text/tokenizer/pipeline/sequence_elements.h"

namespace attend::tokenizer {
namespace {

constexpr size_t kMaxParts = 4096;  // per template; nested templates with repeated texts grow exponentially
constexpr std::ptrdiff_t kMaxTexts = 16;  // per template; each is a copy of the text
constexpr std::string_view kAcceptedPostProcessors =
    "attend reads TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence";

// Reads ["</s>", 2].
int32_t read_special_id(const JsonNode& node) {
  if (node.array_size() != 2) node.corrupt("is not [token, id]");
  return node.at(size_t{1}).token_id();
}

}  // namespace

PostProcessor::PostProcessor(const JsonNode& node) {
  size_t num_steps = 0;
  read(node, 0, num_steps);
}

void PostProcessor::read(const JsonNode& node, int depth, size_t& num_steps) {
  const JsonNode type_node = node.at("type");
  const std::string& type = type_node.string();
  if (type == "TemplateProcessing") {
    add_template(node);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    compose({read_special_id(node.at("cls")), kText, read_special_id(node.at("sep"))}, node);
  } else if (type == "Sequence") {
    const JsonNode list = sequence_elements(node, "processors", depth, num_steps);
    for (size_t i = 0; i < list.array_size(); ++i) read(list.at(i), depth + 1, num_steps);
  } else if (type != "ByteLevel") {
    type_node.unsupported("post-processor \"", type, "\"; ", kAcceptedPostProcessors);
  }
}

void PostProcessor::add_template(const JsonNode& node) {
  const JsonNode pieces = node.at("single");
  std::vector<Part> parts;
  for (size_t i = 0; i < pieces.array_size(); ++i) {
    const JsonNode piece = pieces.at(i);
    if (const auto sequence = piece.find("Sequence")) {
      const JsonNode id = sequence->at("id");
      if (id.string() != "A")
        id.corrupt("\"", id.string(), "\" in the template of a single text; only \"A\" is there");
      parts.push_back(kText);
    } else {
      const JsonNode id = piece.at("SpecialToken").at("id");
      const auto special = node.at("special_tokens").find(id.string());
      if (!special) id.corrupt("\"", id.string(), "\" is not in special_tokens");
      const JsonNode ids = special->at("ids");
      for (size_t k = 0; k < ids.array_size(); ++k) parts.push_back(ids.at(k).token_id());
    }
  }
  const bool has_text = std::any_of(parts.begin(), parts.end(), [](const Part& part) { return !part; });
  if (!has_text) pieces.corrupt("has no place for the text");
  compose(parts, node);
}

void PostProcessor::compose(const std::vector<Part>& parts, const JsonNode& node) {
  std::vector<Part> composed;
  for (const Part& part : parts) {
    if (part) {
      composed.push_back(part);
    } else {
      composed.insert(composed.end(), parts_.begin(), parts_.end());
    }
    if (composed.size() > kMaxParts) node.unsupported("has more than ", kMaxParts, " parts");
  }
  if (const auto num_texts = std::count(composed.begin(), composed.end(), kText); num_texts > kMaxTexts)
    node.unsupported("has the text ", num_texts, " times: at most ", kMaxTexts);
  parts_ = std::move(composed);
}

std::vector<int32_t> PostProcessor::added_ids() const {
  std::vector<int32_t> ids;
  for (const Part& part : parts_) {
    if (part) ids.push_back(*part);
  }
  return ids;
}

size_t PostProcessor::max_text_tokens(size_t max_tokens) const {
  const auto num_texts = static_cast<size_t>(std::count(parts_.begin(), parts_.end(), kText));
  const size_t num_added = parts_.size() - num_texts;
  return num_added < max_tokens ? (max_tokens - num_added) / num_texts : 0;
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids, bool add_special_tokens) const {
  if (parts_.size() == 1) return ids;
  std::vector<int32_t> out;
  out.reserve(ids.size() + parts_.size());
  for (const Part& part : parts_) {
    if (!part) {
      out.insert(out.end(), ids.begin(), ids.end());
    } else if (add_special_tokens) {
      out.push_back(*part);
    }
  }
  return out;
}

}  // namespace attend::tokenizer
