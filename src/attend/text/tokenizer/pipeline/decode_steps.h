// The steps a decoder is made of.
#pragma once

#include <memory>
#include <optional>

#include "attend/text/tokenizer/pipeline/decoder.h"

namespace attend::tokenizer {

// The configuration of one step; nothing if attend has no step of that type.
std::unique_ptr<DecoderConfig> make_decoder_config(const JsonNode& node, std::string_view type);

}  // namespace attend::tokenizer
