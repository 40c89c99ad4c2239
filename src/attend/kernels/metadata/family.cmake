# Page tables, CSR, slot translation; metadata of other contracts.
attend_kernels(metadata
  HEADERS
    kv_index.h
    metadata.h
  SOURCES
    adapters.cc
    metadata.cc
  CUDA
    cuda/metadata.cc
    cuda/metadata_kernels.cu)
