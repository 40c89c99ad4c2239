#include "attend/text/tokenizer/pipeline/post_processor.h"

#include <algorithm>
#include <utility>

#include "attend/base/error.h"
#include "attend/text/tokenizer/pipeline/sequence_elements.h"

namespace attend::tokenizer {
namespace {

constexpr size_t kMaxParts = 4096;  // per template; nested templates with repeated texts grow exponentially
constexpr int kMaxType = 1 << 16;
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
    const int32_t cls = read_special_id(node.at("cls")), sep = read_special_id(node.at("sep"));
    compose({cls, kText, sep}, node);
    const PairPart first{.id = kText, .text = 0, .type = 0}, before{.id = cls}, after{.id = sep};
    if (type == "BertProcessing")
      set_pair(
          {before, first, after, {.id = kText, .text = 1, .type = 1}, {.id = sep, .text = 0, .type = 1}});
    else
      set_pair({before, first, after, after, {.id = kText, .text = 1, .type = 0}, after});
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
  for (const PairPart& piece : read_pieces(pieces, node)) {
    if (!piece.id && piece.text != 0)
      pieces.corrupt("has \"B\" in the template of a single text; only \"A\" is there");
    parts.push_back(piece.id);
  }
  const bool has_text = std::any_of(parts.begin(), parts.end(), [](const Part& part) { return !part; });
  if (!has_text) pieces.corrupt("has no place for the text");
  compose(parts, node);
  const auto pair = node.find("pair");
  set_pair(pair ? read_pieces(*pair, node) : std::vector<PairPart>{});
}

std::vector<PostProcessor::PairPart> PostProcessor::read_pieces(const JsonNode& pieces,
                                                                const JsonNode& node) {
  std::vector<PairPart> parts;
  for (size_t i = 0; i < pieces.array_size(); ++i) {
    const JsonNode piece = pieces.at(i);
    const auto sequence = piece.find("Sequence");
    const JsonNode part = sequence ? *sequence : piece.at("SpecialToken");
    const JsonNode id = part.at("id");
    const int32_t type = part.find_integer("type_id", 0, kMaxType).value_or(0);
    if (sequence) {
      if (id.string() != "A" && id.string() != "B")
        id.corrupt("\"", id.string(), "\" in a template; only \"A\" and \"B\" are texts");
      parts.push_back({.id = kText, .text = id.string() == "B" ? size_t{1} : size_t{0}, .type = type});
      continue;
    }
    const auto special = node.at("special_tokens").find(id.string());
    if (!special) id.corrupt("\"", id.string(), "\" is not in special_tokens");
    const JsonNode ids = special->at("ids");
    for (size_t k = 0; k < ids.array_size(); ++k)
      parts.push_back({.id = ids.at(k).token_id(), .text = 0, .type = type});
    if (parts.size() > kMaxParts) node.unsupported("has more than ", kMaxParts, " parts");
  }
  return parts;
}

// A template applies to the output of the one before it, which is the case for no published tokenizer. Pairs
// with several templates are not supported.
void PostProcessor::set_pair(std::vector<PairPart> parts) {
  const auto count = [&](size_t text) {
    return std::ranges::count_if(parts, [&](const PairPart& part) { return !part.id && part.text == text; });
  };
  const bool usable = ++num_templates_ == 1 && count(0) == 1 && count(1) == 1;
  pair_ = usable ? std::move(parts) : std::vector<PairPart>{};
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
  for (const PairPart& part : pair_)
    if (part.id) ids.push_back(*part.id);
  return ids;
}

const std::vector<PostProcessor::PairPart>& PostProcessor::pair_parts() const {
  if (pair_.empty())
    fail(ErrorCode::kUnsupported,
         "the tokenizer has no template for pairs of texts, or several: expected one, with each text once");
  return pair_;
}

size_t PostProcessor::num_added_to_pair() const { return pair_parts().size() - 2; }

void PostProcessor::apply_pair(std::span<const int32_t> first, std::span<const int32_t> second,
                               std::vector<int32_t>& ids, std::vector<int32_t>& types) const {
  ids.reserve(first.size() + second.size() + pair_.size());
  for (const PairPart& part : pair_parts()) {
    const std::span<const int32_t> text = part.text == 0 ? first : second;
    if (part.id)
      ids.push_back(*part.id);
    else
      ids.insert(ids.end(), text.begin(), text.end());
    types.resize(ids.size(), part.type);
  }
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
