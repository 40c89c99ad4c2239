// GPU properties that kernel selection depends on. Plain values, so that choices for any GPU are tested on
// any machine.
#pragma once

namespace attend::kernels {

struct GpuFacts {
  int major = 0, minor = 0;  // compute capability
  int num_sms = 0;
  int shared_bytes = 0;    // maximum shared memory per CTA
  bool has_sm90a = false;  // the build has machine code for sm_90a

  // Returns true if the GPU runs that code, which requires compute capability 9.0 exactly.
  bool runs_sm90a() const { return has_sm90a && major == 9 && minor == 0; }
};

}  // namespace attend::kernels
