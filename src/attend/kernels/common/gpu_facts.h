// What the choice of a kernel asks about a GPU: numbers alone, so that choices for any GPU are tested on any
// machine.
#pragma once

namespace attend::kernels {

struct GpuFacts {
  int major = 0, minor = 0;  // compute capability
  int num_sms = 0;
  int shared_bytes = 0;    // of shared memory, that a CTA can have
  bool has_sm90a = false;  // the build has machine code for sm_90a

  // Whether it runs that code, which no other compute capability than 9.0 does.
  bool runs_sm90a() const { return has_sm90a && major == 9 && minor == 0; }
};

}  // namespace attend::kernels
