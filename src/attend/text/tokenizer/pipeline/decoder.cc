#include "attend/text/tokenizer/pipeline/decoder.h"

#include "attend/text/tokenizer/pipeline/sequence_elements.h"

namespace attend::tokenizer {
namespace {

constexpr std::string_view kAcceptedDecoders =
    "attend reads ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace, WordPiece and Sequence";

// Last step of every chain.
class Join : public DecodeStep {
 public:
  Join(std::string& out, bool spaces) : out_(out), spaces_(spaces) {}
  void push(const TokenPart& part) override {
    if (part.opens && spaces_ && !first_) out_ += ' ';
    first_ = false;
    out_ += part.text;
  }
  void finish() override {}

 private:
  std::string& out_;
  bool spaces_;
  bool first_ = true;
};

void read(const JsonNode& node, int depth, size_t& num_steps,
          std::vector<std::unique_ptr<DecoderConfig>>& configs) {
  const JsonNode type_node = node.at("type");
  const std::string& type = type_node.string();
  if (type == "Sequence") {
    const JsonNode list = sequence_elements(node, "decoders", depth, num_steps);
    for (size_t i = 0; i < list.array_size(); ++i) read(list.at(i), depth + 1, num_steps, configs);
    return;
  }
  std::unique_ptr<DecoderConfig> config = make_decoder_config(node, type);
  if (!config) type_node.unsupported("decoder \"", type, "\"; ", kAcceptedDecoders);
  configs.push_back(std::move(config));
}

}  // namespace

Decoder::Decoder(const std::optional<JsonNode>& node) : join_with_spaces_(!node) {
  size_t num_steps = 0;
  if (node) read(*node, 0, num_steps, configs_);
}

DecodeChain Decoder::start(std::string& out) const {
  DecodeChain chain;
  chain.steps_.push_back(std::make_unique<Join>(out, join_with_spaces_));
  for (auto config = configs_.rbegin(); config != configs_.rend(); ++config) {
    chain.steps_.push_back((*config)->make(*chain.steps_.back()));
  }
  chain.first_ = chain.steps_.back().get();
  return chain;
}

}  // namespace attend::tokenizer
