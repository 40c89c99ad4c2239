// Operand layouts of prefill in e4m3 (prefill_e4m3.cuh): pure functions, shared by the kernel and by the test
// that emulates its instructions on a CPU.
//
// 8-bit wgmma requires both operands K-major, so P V needs transposed values: a row of V^T is a column of V,
// and its bytes are keys. P replaces S = Q K^T in registers, and must have wgmma's layout of operand A. PTX
// ISA, "Register fragments for wgmma": lane l of a warp, c = l % 4, holds in each of its two rows
//   of S   columns 8 n + 2 c + i               (i = 0, 1; n counts eights of columns)
//   of A   places 16 h + 4 c + e of 32         (e = 0 ... 3, the bytes of register 2 h of the first row and
//                                               2 h + 1 of the second; h = 0, 1)
// A lane holds four elements of S per 16 keys (n = 2 h + b for b = 0, 1), one for each byte of a register:
// keys 16 h + 8 b + 2 c + i. P needs no exchange between lanes if byte e = 2 b + i of a register is that key.
// The product then runs over the keys of each 16 in the order
//   place 4 c + 2 b + i   has key   8 b + 2 c + i,
// and the bytes of a row of V^T have the same order. This order needs no extra instructions: ldmatrix .trans
// of eight keys by 16 columns as pairs of bytes loads to lane l = 4 j + c the columns 2 j and 2 j + 1 of keys
// 2 c and 2 c + 1. From two such matrices, of keys 0 to 7 and 8 to 15, a byte permutation selects column 2 j
// of keys 2 c, 2 c + 1, 8 + 2 c, 9 + 2 c, places 4 c to 4 c + 3; another selects column 2 j + 1. stmatrix
// writes each for all j as eight rows of 16 bytes, one for each j.
//
// In V^T the even columns of 16 precede the odd ones, so that the eight rows that stmatrix writes at once
// are neighbors and lie in different banks: row 8 (d % 2) + d / 2 of 16 is column d. The columns of out
// have the same order, and a lane holds four consecutive ones in 16: 4 c + 2 i + odd for n = 2 q + odd.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda::sm90::e4m3 {

// Bytes of a panel's row, and of a piece. Pieces have the 128-byte swizzle of TMA and wgmma; piece_offset()
// returns the offset of a piece from the panel's begin.
inline constexpr int kRowBytes = 128, kPieceBytes = 16;
ATTEND_HOST_DEVICE constexpr int piece_offset(int row, int piece) {
  return row * kRowBytes + (piece ^ (row & 7)) * kPieceBytes;
}

// Return the key of a place, and the column of a row of V^T, both in 16.
ATTEND_HOST_DEVICE constexpr int key_at_position(int place) {
  return 8 * (place / 2 % 2) + 2 * (place / 4) + place % 2;
}
ATTEND_HOST_DEVICE constexpr int column_for_row(int row) { return row % 8 * 2 + row / 8; }

// Returns the index of the thread's score (4 n + 2 half + i in its fragment) that is byte `byte` of register
// `reg` of operand A, in the product's step `step` over 32 keys.
ATTEND_HOST_DEVICE constexpr int score_for_byte(int step, int reg, int byte) {
  const int half = reg % 2, n = 4 * step + 2 * (reg / 2) + byte / 2;
  return 4 * n + 2 * half + byte % 2;
}

// Columns of out: the first of the four columns that a lane holds in each 16, and the index in its fragment
// (4 n + 2 half + i) of column `column` of those four, in the 16 columns `column_group`.
ATTEND_HOST_DEVICE constexpr int lane_first_column(int lane) { return lane % 4 * 4; }
ATTEND_HOST_DEVICE constexpr int element_for_column(int column_group, int half, int column) {
  const int n = 2 * column_group + column % 2;
  return 4 * n + 2 * half + column / 2;
}

// A warp transposes 32 keys by 16 columns at a time: ldmatrix .trans of four matrices of eight keys, for
// which lane l passes the address of key l; two byte permutations of the first two and of the last two
// registers; stmatrix of the four results.
inline constexpr int kKeysAtOnce = 32, kColumnsAtOnce = 16;
inline constexpr uint32_t kEvenColumn = 0x6420, kOddColumn = 0x7531;  // selectors of "prmt"
// Results: 0 and 1 are the even and the odd columns of the first 16 keys, 2 and 3 of the last.
ATTEND_HOST_DEVICE constexpr int first_register(int result) { return result / 2 * 2; }
ATTEND_HOST_DEVICE constexpr uint32_t selector(int result) {
  return result % 2 == 0 ? kEvenColumn : kOddColumn;
}
// Row of V^T (of 16) and piece (of two) of the address that lane l passes to stmatrix.
ATTEND_HOST_DEVICE constexpr int transposed_row(int lane) { return lane / 8 % 2 * 8 + lane % 8; }
ATTEND_HOST_DEVICE constexpr int transposed_piece(int lane) { return lane / 16; }
// Returns the byte mask of a lane's word of a piece: 0xff where `begin` <= key < `end`, keys of those 32.
ATTEND_HOST_DEVICE constexpr uint32_t key_byte_mask(int lane, int piece, int begin, int end) {
  uint32_t mask = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const int key = 16 * piece + key_at_position(lane % 4 * 4 + byte);
    if (begin <= key && key < end) mask |= 0xffu << (8 * byte);
  }
  return mask;
}

}  // namespace attend::kernels::cuda::sm90::e4m3
