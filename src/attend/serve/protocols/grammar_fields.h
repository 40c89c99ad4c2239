// The grammar that a request asks for, in the words of OpenAI, SGLang and vLLM.
#pragma once

#include <optional>
#include <string>

#include "attend/grammar/grammar_compiler.h"
#include "attend/serve/json/fields.h"

namespace attend::serve {

struct RequestedGrammar {
  Grammar grammar;
  std::string param;  // the field that asks for it
};

// response_format; SGLang's json_schema, regex, ebnf, structural_tag; vLLM's structured_outputs, guided_json,
// guided_regex, guided_choice, guided_grammar. Throws ApiError naming the field, also where there are two.
std::optional<RequestedGrammar> read_grammar(const Fields& fields);

}  // namespace attend::serve
