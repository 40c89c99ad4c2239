#include "attend/kernels/store.h"

#include "attend/kernels/cpu/store.h"
#include "attend/kernels/cuda/attention.h"

namespace attend::kernels {

void store_kv(const StoreKvArgs& args, Stream& stream) {
  check(args);
  if (stream.device.type == DeviceType::kCuda) return cuda::store_kv(args, stream);
  cpu::store_kv(args, cpu::detect_isa());
}

void store_mla(const StoreMlaArgs& args, Stream& stream) {
  check(args);
  if (stream.device.type == DeviceType::kCuda) return cuda::store_mla(args, stream);
  cpu::store_mla(args, cpu::detect_isa());
}

}  // namespace attend::kernels
