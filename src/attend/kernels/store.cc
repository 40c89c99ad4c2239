#include "attend/kernels/store.h"

#include "attend/kernels/check_plan.h"
#include "attend/kernels/cpu/store.h"

namespace attend::kernels {

void store_kv(const StoreKvArgs& args, Stream& stream) {
  check(args);
  require_cpu("store_kv", stream);
  cpu::store_kv(args, cpu::detect_isa());
}

void store_mla(const StoreMlaArgs& args, Stream& stream) {
  check(args);
  require_cpu("store_mla", stream);
  cpu::store_mla(args, cpu::detect_isa());
}

}  // namespace attend::kernels
