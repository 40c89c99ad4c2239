// stdin, stdout and stderr.
#pragma once

#include <string_view>

namespace attend::cli {

// Gives a descriptor that the caller of the program closed to /dev/null, so that no file of a model gets its
// number. Throws Error(kInvalidArgument) when it is stdout: nobody would see what is computed.
void open_standard_streams();

// Writes to stdout, at once. Throws Error(kInvalidArgument) when it can not be written to.
void write_out(std::string_view text);
// What others have written to stdout: std::cout and stdio.
void flush_out();

// Whether stderr is a terminal that can write over a line: not one whose TERM is "dumb".
bool has_bars();

}  // namespace attend::cli
