# Patches of images, positions from tables, joined patches.
attend_kernels(vision
  HEADERS
    vision.h
  SOURCES
    vision.cc
  CUDA
    cuda/vision.cc
    cuda/vision_kernels.cu)
