"""attend.flashinfer as a package named flashinfer (python -m attend.sgl_kernel)."""

import sys

import attend.flashinfer

sys.modules["flashinfer.sampling"] = attend.flashinfer.sampling
for _name in ("activation", "cascade", "decode", "mla", "norm", "prefill", "rope"):
    sys.modules[f"flashinfer.{_name}"] = attend.flashinfer
sys.modules["flashinfer"] = attend.flashinfer
