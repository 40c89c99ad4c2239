# Page tables, CSR, slot translation; metadata of other contracts.
attend_kernels(metadata
  HEADERS
    adapters.h
    kv_index.h
    lengths.h
    metadata.h
    page_of.h
  SOURCES
    adapters.cc
    metadata.cc
  CUDA
    cuda/metadata.cc
    cuda/metadata_kernels.cu)
