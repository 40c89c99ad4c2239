# New K/V into a pool.
attend_kernels(kv_store
  HEADERS
    batch_arrays.h
    kv_destination.h
    latent_rows.h
    store.h
  SOURCES
    batch_arrays.cc
    latent_rows.cc
    reference.cc
    store.cc
    cpu/store.cc
  CUDA
    cuda/batch_arrays.cu
    cuda/latent_rows.cu
    cuda/store.cc
    cuda/store_kernel.cu)
