# The instances of the sm80 attention kernels: dtype of K and V, head dims. q has the dtype of K and V, or either of
# the 16-bit ones where those are fp8. Head dims in between run in the next instance that holds them; of two that hold
# them the first in this list is taken.
set(sm80_attention_instances
  # kv qk  v
  "bf16 64  64"
  "bf16 128 128"
  "bf16 192 128"
  "bf16 256 256"
  "f16  64  64"
  "f16  128 128"
  "f16  192 128"
  "f16  256 256"
  "e4m3 64  64"
  "e4m3 128 128"
  "e4m3 192 128"
  "e4m3 256 256"
  "e5m2 64  64"
  "e5m2 128 128"
  "e5m2 192 128"
  "e5m2 256 256")
if(ATTEND_SAMPLE_KERNELS)
  set(sm80_attention_instances "bf16 64  64" "e5m2 256 256")  # each takes as long as ten other kernels
endif()

set(cpp_type_bf16 __nv_bfloat16)
set(cpp_type_f16 __half)
set(element_bf16 kBF16)
set(element_f16 kF16)
set(element_e4m3 kF8E4M3)
set(element_e5m2 kF8E5M2)
foreach(row IN LISTS sm80_attention_instances)
  string(REGEX MATCHALL "[^ ]+" row "${row}")
  list(GET row 0 kv)
  list(GET row 1 head_dim_qk)
  list(GET row 2 head_dim_v)
  set(element ${element_${kv}})
  set(instance attention_${kv}_${head_dim_qk}_${head_dim_v})
  string(APPEND instance_declarations
    "void launch_${instance}(const AttentionParams& params, int num_row_tiles, void* stream);\n")
  string(APPEND instance_rows
    "    {Element::${element}, ${head_dim_qk}, ${head_dim_v}, launch_${instance}},\n")
  configure_file(attention/cuda/sm80/attention_instance.cu.in ${generated_dir}/sm80/${instance}.cu @ONLY)
  list(APPEND cuda_sources ${generated_dir}/sm80/${instance}.cu)
  # Decode of a lone request (kLoneDecodeDims of common/tile_config.h).
  if(DEFINED cpp_type_${kv} AND head_dim_qk EQUAL head_dim_v AND head_dim_v LESS_EQUAL 128)
    set(cpp_type ${cpp_type_${kv}})
    set(instance lone_decode_${kv}_${head_dim_v})
    string(APPEND instance_declarations "void launch_${instance}(const AttentionParams& params, void* stream);\n")
    string(APPEND lone_decode_rows "    {Element::${element}, ${head_dim_v}, launch_${instance}},\n")
    configure_file(attention/cuda/sm80/lone_decode_instance.cu.in ${generated_dir}/sm80/${instance}.cu @ONLY)
    list(APPEND cuda_sources ${generated_dir}/sm80/${instance}.cu)
  endif()
endforeach()
configure_file(attention/cuda/sm80/sm80_instances.h.in ${generated_dir}/attend_generated/sm80_instances.h @ONLY)
