# Instances of the sm80 attention kernels: dtype of K and V, head dims. q has the dtype of K and V, or with
# fp8 either 16-bit dtype. Other head dims use the next larger instance; if two instances support them, the first of this
# list.
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
  set(sm80_attention_instances "bf16 64  64" "e5m2 64 64")  # each compiles as long as ten other kernels
endif()

set(element_bf16 kBF16)
set(element_f16 kF16)
set(element_e4m3 kF8E4M3)
set(element_e5m2 kF8E5M2)
set(instance_declarations "")
set(instance_rows "")
foreach(row IN LISTS sm80_attention_instances)
  string(REGEX MATCHALL "[^ ]+" row "${row}")
  list(POP_FRONT row kv head_dim_qk head_dim_v)
  set(instance attention_${kv}_${head_dim_qk}_${head_dim_v})
  set(signature "void launch_${instance}(const AttentionParams& params, int num_row_tiles, void* stream)")
  string(APPEND instance_declarations "${signature};\n")
  string(APPEND instance_rows
    "    {Element::${element_${kv}}, ${head_dim_qk}, ${head_dim_v}, launch_${instance}},\n")
  add_unit(cuda_sources sm80/${instance}.cu attention/cuda/sm80/attention_launch.cuh cuda::sm80
    "${signature} {
  launch_instance<Element::${element_${kv}}, ${head_dim_qk}, ${head_dim_v}>(params, num_row_tiles, stream);
}
")
endforeach()
configure_file(attention/cuda/sm80/sm80_instances.h.in ${generated_dir}/attend_generated/sm80_instances.h @ONLY)
