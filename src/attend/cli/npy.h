// NumPy's .npy files.
#pragma once

#include <string>
#include <vector>

namespace attend::cli {

// A float32 array [rows.size(), row size], version 1.0 of the format. Rows are of one size.
std::string npy_bytes(const std::vector<std::vector<float>>& rows);

}  // namespace attend::cli
