// Tools of a request and the format of its answer, independent of the API. Each function throws ApiError that
// names the field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attend/serve/formats/tool_format.h"
#include "attend/serve/protocols/generation_job.h"

namespace attend::serve {

// Codes of errors about tools, in the error of each API.
namespace tool_error {
inline constexpr std::string_view kUnknownTool = "unknown_tool", kDuplicateTool = "duplicate_tool",
                                  kInvalidCall = "invalid_tool_call", kDuplicateCall = "duplicate_tool_call",
                                  kNoCall = "tool_call_not_found", kNoResult = "tool_result_not_found",
                                  kDuplicateResult = "duplicate_tool_result";
}  // namespace tool_error

// Makes a tool of a request. `where`: the field with the definition. `parameters`: the JSON schema of the
// arguments, an object, in the field `schema_key`; null: none.
Tool make_tool(const std::string& where, const std::string& name, const Json* parameters, bool strict,
               const char* schema_key = "parameters");
// Appends the tool. Rejects a duplicate name.
void add_tool(Tool tool, std::vector<Tool>& tools);
// Rejects a name that is not one of the tools'. `where`: the field with the name.
void check_tool_choice(const std::string& where, const std::string& name, const std::vector<Tool>& tools);
// Rejects the arguments of an earlier call that are not a JSON object, its text, or empty. They may break the
// tool's schema, since agents report a faulty call to the model as its result. `where`: the field with them;
// `arguments`: null if it is missing.
void check_call_arguments(const std::string& where, const Json* arguments);

// Sets how the answer is parsed, and the grammar if calls are required. `separates_reasoning`: reasoning is a
// part of its own, if the server has a format.
void set_answer_format(std::vector<Tool> tools, ToolChoice choice, bool separates_reasoning,
                       const ChatFormats& formats, GenerationJob& job);

}  // namespace attend::serve
