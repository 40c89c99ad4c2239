# Instances of prefill: head dims of K and of V. Other head dims use the next larger instance; if two instances
# support them, the first of this list.
set(prefill_head_dims "64 64" "96 96" "128 128" "192 128" "256 256" "512 512")
set(prefill_head_dims_of_fp8 "64 64" "128 128")
set(prefill_head_dims_of_e4m3 "64 64" "128 128" "192 128")  # q and K/V of e4m3, multiplied without conversion
# Head dims of single-request decode (kSingleRequestDecodeDims of common/tile_config.h).
set(decode_head_dims 64 128)
# q and K/V, head dims.
set(prefill_sample "bf16 bf16 64 64" "bf16 bf16 256 256" "bf16 bf16 512 512" "bf16 e4m3 64 64" "f16 f16 64 64"
  "f16 e5m2 64 64")
if(ATTEND_SAMPLE_KERNELS)
  set(prefill_head_dims_of_e4m3 "192 128")
endif()

set(instance_declarations "")
set(instance_rows "")
set(decode_rows "")
# Translation unit of prefill for q and K/V of these element types.
macro(add_prefill q kv q_element kv_element head_dim_qk head_dim_v header code)
  set(instance prefill_${q}_${kv}_${head_dim_qk}_${head_dim_v})
  set(signature "void launch_${instance}(const PrefillParams& params, int num_ctas, void* stream)")
  string(APPEND instance_declarations "${signature};\n")
  string(APPEND instance_rows "    {Element::${q_element}, Element::${kv_element}, ${head_dim_qk}, ${head_dim_v},\n"
    "     launch_${instance}},\n")
  add_unit(sm90_sources sm90/${instance}.cu attention/cuda/sm90/${header} cuda::sm90
    "${signature} {\n  ${code}(params, num_ctas, stream);\n}\n")
endmacro()

foreach(type "bf16 kBF16 __nv_bfloat16" "f16 kF16 __half")
  separate_arguments(type)
  list(POP_FRONT type name element cpp_type)
  foreach(kv "${name} ${element}" "e4m3 kF8E4M3" "e5m2 kF8E5M2")
    separate_arguments(kv)
    list(POP_FRONT kv kv_name kv_element)
    set(all_head_dims ${prefill_head_dims})
    if(NOT "${kv_name}" STREQUAL "${name}")
      set(all_head_dims ${prefill_head_dims_of_fp8})
    endif()
    foreach(head_dims IN LISTS all_head_dims)
      if(ATTEND_SAMPLE_KERNELS AND NOT "${name} ${kv_name} ${head_dims}" IN_LIST prefill_sample)
        continue()
      endif()
      separate_arguments(head_dims)
      list(POP_FRONT head_dims head_dim_qk head_dim_v)
      add_prefill(${name} ${kv_name} ${element} ${kv_element} ${head_dim_qk} ${head_dim_v} prefill/prefill.cuh
        "launch_prefill<${cpp_type}, Element::${kv_element}, ${head_dim_qk}, ${head_dim_v}>")
      if("${kv_name}" STREQUAL "${name}")
        add_unit(sm90_sources sm90/prefill_rows_${name}_${head_dim_qk}_${head_dim_v}.cu
          attention/cuda/sm90/prefill/prefill_by_rows.cuh cuda::sm90
          "template void launch_prefill_by_rows<${cpp_type}, ${head_dim_qk}, ${head_dim_v}>(const PrefillParams& params,
                                                                             int num_ctas, void* stream);
")
      endif()
    endforeach()
  endforeach()
  foreach(head_dim IN LISTS decode_head_dims)
    if(ATTEND_SAMPLE_KERNELS AND NOT "${name} ${head_dim}" STREQUAL "bf16 64")
      continue()
    endif()
    set(instance single_request_decode_${name}_${head_dim})
    set(signature "void launch_${instance}(const AttentionParams& params, void* stream)")
    string(APPEND instance_declarations "${signature};\n")
    string(APPEND decode_rows "    {Element::${element}, ${head_dim}, launch_${instance}},\n")
    add_unit(sm90_sources sm90/${instance}.cu attention/cuda/sm90/decode/single_request_decode.cuh cuda::sm90
      "${signature} {\n  launch_single_request_decode<${cpp_type}, ${head_dim}>(params, stream);\n}\n")
  endforeach()
endforeach()
foreach(head_dims IN LISTS prefill_head_dims_of_e4m3)
  separate_arguments(head_dims)
  list(POP_FRONT head_dims head_dim_qk head_dim_v)
  add_prefill(e4m3 e4m3 kF8E4M3 kF8E4M3 ${head_dim_qk} ${head_dim_v} prefill_e4m3/prefill_e4m3.cuh
    "launch_prefill_e4m3<${head_dim_qk}, ${head_dim_v}>")
endforeach()
configure_file(attention/cuda/sm90/sm90_instances.h.in ${generated_dir}/attend_generated/sm90_instances.h @ONLY)
