# Generates the wgmma instructions for every number of columns that a kernel uses.

# Sets for an instruction with N columns: num_accumulators; names and operands of the accumulators in the asm statement; and
# operand_1, operand_2, ..., the indices of the operands after them.
macro(name_operands num_columns)
  math(EXPR num_accumulators "${num_columns} / 2")
  math(EXPR last_accumulator "${num_accumulators} - 1")
  foreach(i RANGE 1 5)
    math(EXPR operand_${i} "${num_accumulators} + ${i}")
  endforeach()
  set(names "")
  set(operands "")
  foreach(i RANGE ${last_accumulator})
    list(APPEND names "%${i}")
    list(APPEND operands "\"+f\"(accumulators[${i}])")
  endforeach()
  list(JOIN names ", " names)
  list(JOIN operands ", " operands)
endmacro()

# N of wgmma: rows of x of the swap-AB GEMM (swap_ab_gemm_kernel.h), rows of weights of the gated-MLP GEMM
# (gated_mlp_gemm.h), features of the batch-invariant GEMM, and keys or columns of values of prefill (prefill.cuh).
set(columns_of_products 32 48 64 96 112 128 160 192 224 256)
set(wgmma_products "")
foreach(num_columns IN LISTS columns_of_products)
  name_operands(${num_columns})
  foreach(type "bf16 __nv_bfloat16" "f16 __half")
    separate_arguments(type)
    list(GET type 0 ptx_type)
    list(GET type 1 cpp_type)
    set(instruction "wgmma.mma_async.sync.aligned.m64n${num_columns}k16.f32.${ptx_type}.${ptx_type}")
    string(APPEND wgmma_products
"__device__ inline void wgmma_mma_async(float (&accumulators)[${num_accumulators}], uint64_t a, uint64_t b, bool add, ${cpp_type}) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_2}, 0;\\n\"
      \"${instruction} \"
      \"{${names}}, %${num_accumulators}, %${operand_1}, add, 1, 1, 0, 0;\\n}\\n\"
      : ${operands}
      : \"l\"(a), \"l\"(b), \"r\"(static_cast<int>(add)));
}
__device__ inline void wgmma_mma_async_rs(float (&accumulators)[${num_accumulators}], const uint32_t (&a)[4], uint64_t b,
                                          bool add, ${cpp_type}) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_5}, 0;\\n\"
      \"${instruction} \"
      \"{${names}}, {%${num_accumulators}, %${operand_1}, %${operand_2}, %${operand_3}}, %${operand_4}, add, 1, 1, 1;\\n}\\n\"
      : ${operands}
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(static_cast<int>(add)));
}
")
  endforeach()
endforeach()
configure_file(common/cuda/sm90/wgmma_products.cuh.in ${generated_dir}/attend_generated/wgmma_products.cuh @ONLY)

# Instructions of wide decode (wide_decode.cuh), where N is query rows: MN-major a, and K-major a for numbers of columns
# that only this kernel uses.
set(wgmma_transposed_products "")
foreach(num_columns IN ITEMS 16 64)
  name_operands(${num_columns})
  foreach(type "bf16 __nv_bfloat16" "f16 __half")
    separate_arguments(type)
    list(GET type 0 ptx_type)
    list(GET type 1 cpp_type)
    set(instruction "wgmma.mma_async.sync.aligned.m64n${num_columns}k16.f32.${ptx_type}.${ptx_type}")
    string(APPEND wgmma_transposed_products
"__device__ inline void wgmma_mma_async_transposed_a(float (&accumulators)[${num_accumulators}], uint64_t a, uint64_t b, bool add,
                                                    ${cpp_type}) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_2}, 0;\\n\"
      \"${instruction} \"
      \"{${names}}, %${num_accumulators}, %${operand_1}, add, 1, 1, 1, 0;\\n}\\n\"
      : ${operands}
      : \"l\"(a), \"l\"(b), \"r\"(static_cast<int>(add)));
}
")
    if(NOT num_columns IN_LIST columns_of_products)
      string(APPEND wgmma_transposed_products
"__device__ inline void wgmma_mma_async(float (&accumulators)[${num_accumulators}], uint64_t a, uint64_t b, bool add, ${cpp_type}) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_2}, 0;\\n\"
      \"${instruction} \"
      \"{${names}}, %${num_accumulators}, %${operand_1}, add, 1, 1, 0, 0;\\n}\\n\"
      : ${operands}
      : \"l\"(a), \"l\"(b), \"r\"(static_cast<int>(add)));
}
")
    endif()
  endforeach()
endforeach()
configure_file(common/cuda/sm90/wgmma_transposed_products.cuh.in
               ${generated_dir}/attend_generated/wgmma_transposed_products.cuh @ONLY)


# Instructions with a in registers and K-major b: N is rows of x of the swap-AB quantized GEMM or of mxfp4 expert tiles, or
# keys of prefill under fixed splits.
# wgmma_wide_products: numbers of columns that only the mxfp4 expert tiles use, in a separate header.
set(wgmma_codes_products "")
set(wgmma_wide_products "")
foreach(num_columns IN ITEMS 32 64 128 256)
  name_operands(${num_columns})
  set(products wgmma_codes_products)
  if(num_columns EQUAL 256)
    set(products wgmma_wide_products)
  endif()
  foreach(type "bf16 __nv_bfloat16" "f16 __half")
    separate_arguments(type)
    list(GET type 0 ptx_type)
    list(GET type 1 cpp_type)
    string(APPEND ${products}
"__device__ inline void wgmma_mma_async_rs_k_major(float (&accumulators)[${num_accumulators}], const uint32_t (&a)[4], uint64_t b,
                                                  bool add, ${cpp_type}) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_5}, 0;\\n\"
      \"wgmma.mma_async.sync.aligned.m64n${num_columns}k16.f32.${ptx_type}.${ptx_type} \"
      \"{${names}}, {%${num_accumulators}, %${operand_1}, %${operand_2}, %${operand_3}}, %${operand_4}, add, 1, 1, 0;\\n}\\n\"
      : ${operands}
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(static_cast<int>(add)));
}
")
  endforeach()
endforeach()
configure_file(common/cuda/sm90/wgmma_codes_products.cuh.in
               ${generated_dir}/attend_generated/wgmma_codes_products.cuh @ONLY)
set(wgmma_codes_products "${wgmma_wide_products}")
configure_file(common/cuda/sm90/wgmma_codes_products.cuh.in
               ${generated_dir}/attend_generated/wgmma_wide_products.cuh @ONLY)

# Instructions for e4m3: N is keys or columns of values of prefill (prefill_e4m3.cuh).
set(wgmma_e4m3_products "")
foreach(num_columns IN ITEMS 64 128)
  name_operands(${num_columns})
  set(instruction "wgmma.mma_async.sync.aligned.m64n${num_columns}k32.f32.e4m3.e4m3")
  string(APPEND wgmma_e4m3_products
"__device__ inline void wgmma_mma_async(float (&accumulators)[${num_accumulators}], uint64_t a, uint64_t b, bool add,
                                       __nv_fp8_e4m3) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_2}, 0;\\n\"
      \"${instruction} \"
      \"{${names}}, %${num_accumulators}, %${operand_1}, add, 1, 1;\\n}\\n\"
      : ${operands}
      : \"l\"(a), \"l\"(b), \"r\"(static_cast<int>(add)));
}
__device__ inline void wgmma_mma_async_rs(float (&accumulators)[${num_accumulators}], const uint32_t (&a)[4], uint64_t b,
                                          bool add, __nv_fp8_e4m3) {
  asm volatile(
      \"{\\n.reg .pred add;\\nsetp.ne.b32 add, %${operand_5}, 0;\\n\"
      \"${instruction} \"
      \"{${names}}, {%${num_accumulators}, %${operand_1}, %${operand_2}, %${operand_3}}, %${operand_4}, add, 1, 1;\\n}\\n\"
      : ${operands}
      : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(static_cast<int>(add)));
}
")
endforeach()
configure_file(common/cuda/sm90/wgmma_e4m3_products.cuh.in
               ${generated_dir}/attend_generated/wgmma_e4m3_products.cuh @ONLY)
