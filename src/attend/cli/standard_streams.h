// Standard streams stdin, stdout and stderr.
#pragma once

#include <cstddef>
#include <string_view>

namespace attend::cli {

// Opens /dev/null for each standard descriptor that is closed, so that no file of a model gets its number.
// Throws Error(kInvalidArgument) if stdout is closed, since the output would be lost.
void open_standard_streams();

// Writes to stdout without buffering. Throws Error(kInvalidArgument) on failure.
void write_out(std::string_view text);
// Flushes output that was written through std::cout or stdio.
void flush_out();

// Columns of the terminal of a descriptor, otherwise of the variable COLUMNS, otherwise 80.
size_t terminal_columns(int descriptor);

// Returns true if stderr is a terminal that can overwrite a line (TERM is not "dumb").
bool has_bars();

}  // namespace attend::cli
