// Where operands of prefill in e4m3 lie (prefill_e4m3.cuh): pure functions that the kernel and the test that
// plays its instructions on a CPU share.
//
// wgmma of 8 bits takes both operands K-major, so P V wants the values transposed: a row of V^T is a column
// of V, its bytes are keys. And P, which S = Q K^T leaves in registers, must be where wgmma looks for
// operand A. PTX ISA, "Register fragments for wgmma": lane l of a warp, c = l % 4, has of each of its two
// rows
//   of S   columns 8 n + 2 c + i               (i = 0, 1; n counts eights of columns)
//   of A   places 16 h + 4 c + e of 32         (e = 0 ... 3, the bytes of register 2 h of the first row and
//                                               2 h + 1 of the second; h = 0, 1)
// Its elements of S of 16 keys, n = 2 h + b for b = 0, 1, are as many as bytes in a register: keys
// 16 h + 8 b + 2 c + i. So P needs no exchange between lanes when byte e = 2 b + i of a register is that key,
// which is to say that the product runs over the keys of each 16 in the order
//   place 4 c + 2 b + i   has key   8 b + 2 c + i,
// and the bytes of a row of V^T lie in the same order. They come to lie so by themselves: ldmatrix .trans of
// eight keys by 16 columns as pairs of bytes gives lane l = 4 j + c the columns 2 j and 2 j + 1 of keys 2 c
// and 2 c + 1. Of two such matrices, of keys 0 to 7 and 8 to 15, a byte permutation takes column 2 j of keys
// 2 c, 2 c + 1, 8 + 2 c, 9 + 2 c, places 4 c to 4 c + 3; another takes column 2 j + 1. stmatrix writes
// either for all j as eight rows of 16 bytes, one for each j.
//
// In V^T the even columns of 16 lie before the odd ones, so that the eight rows that stmatrix writes at once
// are neighbors and lie in different banks: row 8 (d % 2) + d / 2 of 16 is column d. Out then has columns
// in that order too, of which a lane has four in a row in 16: 4 c + 2 i + odd for n = 2 q + odd.
#pragma once

#include <cstdint>

#include "attend/kernels/common/host_device.h"

namespace attend::kernels::cuda::sm90::e4m3 {

// Bytes of a row of a panel, in pieces of 16 swizzled as TMA and wgmma do in 128 bytes: where a piece of a
// row lies, from the panel's begin.
inline constexpr int kRowBytes = 128, kPieceBytes = 16;
ATTEND_HOST_DEVICE constexpr int piece_offset(int row, int piece) {
  return row * kRowBytes + (piece ^ (row & 7)) * kPieceBytes;
}

// Keys that a place of 16 and columns that a row of 16 of V^T stand for.
ATTEND_HOST_DEVICE constexpr int key_at_position(int place) {
  return 8 * (place / 2 % 2) + 2 * (place / 4) + place % 2;
}
ATTEND_HOST_DEVICE constexpr int column_for_row(int row) { return row % 8 * 2 + row / 8; }

// Which of a thread's scores (element 4 n + 2 half + i of its fragment) is byte `byte` of register `reg` of
// operand A, of the product's step over 32 keys.
ATTEND_HOST_DEVICE constexpr int score_for_byte(int step, int reg, int byte) {
  const int half = reg % 2, n = 4 * step + 2 * (reg / 2) + byte / 2;
  return 4 * n + 2 * half + byte % 2;
}

// Of out: the first of the four columns that a lane has in each 16, and which element of its fragment
// (4 n + 2 half + i) column `column` of those four of 16 number `column_group` is.
ATTEND_HOST_DEVICE constexpr int lane_first_column(int lane) { return lane % 4 * 4; }
ATTEND_HOST_DEVICE constexpr int element_for_column(int column_group, int half, int column) {
  const int n = 2 * column_group + column % 2;
  return 4 * n + 2 * half + column / 2;
}

// A warp transposes 32 keys by 16 columns at a time: ldmatrix .trans of four matrices of eight keys, of
// which lane l gives the address of key l; two byte permutations of the first two and of the last two
// registers; stmatrix of the four results.
inline constexpr int kKeysAtOnce = 32, kColumnsAtOnce = 16;
inline constexpr uint32_t kEvenColumn = 0x6420, kOddColumn = 0x7531;  // selectors of "prmt"
// Results: 0 and 1 are the even and the odd columns of the first 16 keys, 2 and 3 of the last.
ATTEND_HOST_DEVICE constexpr int first_register(int result) { return result / 2 * 2; }
ATTEND_HOST_DEVICE constexpr uint32_t selector(int result) {
  return result % 2 == 0 ? kEvenColumn : kOddColumn;
}
// The row of V^T, of 16, and the piece, of two, whose address lane l gives to stmatrix.
ATTEND_HOST_DEVICE constexpr int transposed_row(int lane) { return lane / 8 % 2 * 8 + lane % 8; }
ATTEND_HOST_DEVICE constexpr int transposed_piece(int lane) { return lane / 16; }
// Bytes of a lane's words of either piece, 0xff where `begin` <= key < `end`: keys of those 32.
ATTEND_HOST_DEVICE constexpr uint32_t key_byte_mask(int lane, int piece, int begin, int end) {
  uint32_t mask = 0;
  for (int byte = 0; byte < 4; ++byte) {
    const int key = 16 * piece + key_at_position(lane % 4 * 4 + byte);
    if (begin <= key && key < end) mask |= 0xffu << (8 * byte);
  }
  return mask;
}

}  // namespace attend::kernels::cuda::sm90::e4m3
