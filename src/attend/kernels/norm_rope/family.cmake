# Norms, rotary embeddings, activations, rows of embeddings.
attend_kernels(norm_rope
  HEADERS
    elementwise.h
    rope.h
  SOURCES
    check_rows.cc
    elementwise.cc
    latent_norm_rope_store.cc
    rope.cc
    rope_rows.cc
    cpu/elementwise.cc
  ISA
    "cpu/elementwise ElementwiseKernels elementwise_kernels"
  CUDA
    cuda/clear_first_rows_kernel.cu
    cuda/copy_heads_kernel.cu
    cuda/dynamic_angles_kernel.cu
    cuda/elementwise.cc
    cuda/elementwise_kernels.cu
    cuda/latent_norm_rope_store.cc
    cuda/latent_row_kernel.cu
    cuda/layer_norm_kernel.cu
    cuda/norm_rope_groups_kernel.cu
    cuda/norm_rope_kernel.cu
    cuda/rms_norm_add_kernel.cu
    cuda/rope_rows.cu
    cuda/scale_by_position_kernel.cu)
