// MarkerFilter: removes markers of a format that are neither calls nor text, such as those around an answer.
#pragma once

#include <memory>

#include "attend/serve/formats/answer_parser.h"
#include "attend/serve/formats/tool_format.h"

namespace attend::serve {

// Returns a parser that passes the text without the markers to `rest`; `rest` if there are no markers.
std::unique_ptr<AnswerParser> make_marker_filter(const Texts& markers, std::unique_ptr<AnswerParser> rest);

}  // namespace attend::serve
