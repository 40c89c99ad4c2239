"""The tiny random models of tests/goldens by name (golden_configs.py contains shared parts of their configs).

Each case covers something that no other case covers: a head dimension, a GQA ratio, a rope type, a bias, a window, a
weight format. make_goldens.py writes them. Their order determines their seeds, so a new case is the last one.
"""

from golden_cases import (
    dense,
    experts,
    gemma4,
    layer_norm,
    mixtures,
    quantized,
    quantized_experts,
    recurrent,
    sparse,
    variants,
)

CASES = (
    dense.CASES
    | experts.CASES
    | quantized.CASES
    | variants.CASES
    | quantized_experts.CASES
    | recurrent.CASES
    | gemma4.CASES
    | layer_norm.CASES
    | mixtures.CASES
    | sparse.CASES
)
