"""attend.sgl_kernel as a package named sgl_kernel (python -m attend.sgl_kernel)."""

import sys

import attend.sgl_kernel

for _name in ("attention", "elementwise", "flash_attn", "flash_mla", "moe", "sampling"):
    sys.modules[f"sgl_kernel.{_name}"] = getattr(attend.sgl_kernel, _name)
sys.modules["sgl_kernel"] = attend.sgl_kernel
