// Grammar of a request, in the fields of OpenAI, SGLang and vLLM.
#pragma once

#include <optional>
#include <string>

#include "attend/grammar/grammar_compiler.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

struct RequestedGrammar {
  Grammar grammar;
  std::string param;  // field that requests the grammar
};

// Reads response_format; SGLang's json_schema, regex, ebnf and structural_tag; vLLM's structured_outputs,
// guided_json, guided_regex, guided_choice and guided_grammar; llama-server's grammar. Throws ApiError that
// names the field, also if there is more than one.
std::optional<RequestedGrammar> read_grammar(const Fields& fields);

}  // namespace attend::serve
