"""Packs weights in the formats of published quantized checkpoints, for the tiny models of tests/goldens.

A scheme converts the weight of a linear layer to the tensors of a file, and returns their dequantized float32 values:
goldens are computed by transformers from a copy with these. The formats are those of the publishers (AutoAWQ, GPTQModel,
compressed-tensors, ModelOpt, DeepSeek, gpt-oss); none of their packages is needed.
"""

import torch

E2M1 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
# Column (of eight) of each quantized value in a word, lowest bits first.
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def words(codes, dim):
    """Packs eight 4-bit values along `dim` into an int32, the first one in the lowest bits."""
    codes = codes.to(torch.int64).movedim(dim, -1)
    packed = sum(codes[..., i::8] << (4 * i) for i in range(8))
    packed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return packed.to(torch.int32).movedim(-1, dim).contiguous()


def groups_of(weight, group):
    """Returns shape [outputs, groups, group]."""
    return weight.unflatten(1, (-1, group))


class Fp8:
    """fp8. `blocks`: outputs and inputs per scale; None: all outputs, or all inputs. `static`: name of the activations'
    scale, if there is one.
    """

    def __init__(self, config, blocks=(None, None), scale_dtype=torch.float32, name="weight_scale", static=None):
        self.config = config
        self.blocks = blocks
        self.scale_dtype = scale_dtype
        self.name = name
        self.static = static

    def pack(self, weight, generator):
        outs, ins = (size or whole for size, whole in zip(self.blocks, weight.shape))
        rows, columns = (-(-whole // size) for whole, size in zip(weight.shape, (outs, ins)))
        scales = torch.empty(rows, columns)
        for row in range(rows):
            for column in range(columns):
                block = weight[row * outs : (row + 1) * outs, column * ins : (column + 1) * ins]
                scales[row, column] = block.abs().max() / 448
        scales = scales.to(self.scale_dtype)
        wide = scales.float().repeat_interleave(outs, 0).repeat_interleave(ins, 1)
        wide = wide[: weight.shape[0], : weight.shape[1]]
        codes = (weight / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        if self.blocks == (None, None):
            scales = scales.reshape(())
        tensors = {"weight": codes, self.name: scales}
        if self.static:
            tensors[self.static] = torch.tensor(0.02)
        return tensors, codes.float() * wide


class Int4:
    """Values 0 to 15 in groups along the inputs, with a zero point each unless `symmetric`; `layout`: packed, gptq or awq."""

    def __init__(
        self, config, layout, group=32, symmetric=True, act_order=False, less_one=False, dtype=torch.float16
    ):
        self.config = config
        self.layout = layout
        self.group = group
        self.symmetric = symmetric
        self.act_order = act_order
        self.less_one = less_one
        self.dtype = dtype

    def pack(self, weight, generator):
        num_outs, num_ins = weight.shape
        order = torch.arange(num_ins)
        if self.act_order:
            order = torch.randperm(num_ins, generator=generator)
        groups = groups_of(weight[:, order], self.group)
        if self.symmetric:
            scales = (groups.abs().amax(2) / 7.5).to(self.dtype)
            zeros = torch.full(scales.shape, 8)
        else:
            low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
            scales = ((high - low) / 15).to(self.dtype)
            # GPTQ's first format cannot represent 0.
            zeros = (-low / scales.float()).round().clamp(1, 14).to(torch.int64)
        wide, offset = scales.float()[..., None], zeros[..., None]
        codes = ((groups / wide).round() + offset).clamp(0, 15).to(torch.int64)
        values, sorted_codes = ((codes - offset) * wide).flatten(1), codes.flatten(1)
        # Files keep the inputs in their order.
        index = torch.empty(num_ins, dtype=torch.int32)
        index[order] = (torch.arange(num_ins) // self.group).to(torch.int32)
        back = torch.argsort(order)
        values, codes = values[:, back], sorted_codes[:, back]
        return getattr(self, self.layout)(codes, scales, zeros, index), values

    def packed(self, codes, scales, zeros, index):
        tensors = {
            "weight_packed": words(codes, 1),
            "weight_scale": scales,
            "weight_shape": torch.tensor(codes.shape),
        }
        if not self.symmetric:
            tensors["weight_zero_point"] = words(zeros, 0)
        if self.act_order:
            tensors["weight_g_idx"] = index
        return tensors

    def gptq(self, codes, scales, zeros, index):
        return {
            "qweight": words(codes.T, 0),
            "qzeros": words(zeros.T - (1 if self.less_one else 0), 1),
            "scales": scales.T.contiguous(),
            "g_idx": index,
        }

    def awq(self, codes, scales, zeros, index):
        def mixed(matrix):
            return words(matrix.T.unflatten(1, (-1, 8))[..., AWQ_ORDER].flatten(1), 1)

        return {"qweight": mixed(codes), "qzeros": mixed(zeros), "scales": scales.T.contiguous()}


class Int8:
    """Symmetric integers in groups along the inputs, None: all; `layout`: plain, packed or gptq."""

    def __init__(self, config, layout, group=None, dtype=torch.float16):
        self.config = config
        self.layout = layout
        self.group = group
        self.dtype = dtype

    def pack(self, weight, generator):
        groups = groups_of(weight, self.group or weight.shape[1])
        scales = (groups.abs().amax(2) / 127.5).to(self.dtype)
        wide = scales.float()[..., None]
        integers = (groups / wide).round().clamp(-128, 127)
        values, integers = (integers * wide).flatten(1), integers.flatten(1).to(torch.int8)
        if self.layout == "plain":
            return {"weight": integers, "weight_scale": scales}, values
        # Four per word, as bytes with offset 128.
        codes = (integers.to(torch.int16) + 128).to(torch.uint8)
        if self.layout == "packed":
            tensors = {
                "weight_packed": codes.contiguous().view(torch.int32),
                "weight_scale": scales,
                "weight_shape": torch.tensor(codes.shape),
            }
            return tensors, values
        num_outs, num_ins = codes.shape
        rows = codes.T.unflatten(0, (-1, 4)).transpose(1, 2).contiguous()
        tensors = {
            "qweight": rows.view(torch.int32).squeeze(2),
            # Stored minus 1.
            "qzeros": torch.full((scales.shape[1], num_outs), 127, dtype=torch.uint8).view(torch.int32),
            "scales": scales.T.contiguous(),
            "g_idx": (torch.arange(num_ins) // (self.group or num_ins)).to(torch.int32),
        }
        return tensors, values


class MxFp4:
    """e2m1 values with a power-of-two scale for each 32 inputs."""

    def __init__(self, config):
        self.config = config

    def pack(self, weight, generator):
        groups = groups_of(weight, 32)
        exponents = groups.abs().amax(2).log2().floor().clamp(-120, 120) - 2
        scaled = groups / exponents.exp2()[..., None]
        codes = (scaled.abs()[..., None] - E2M1).abs().argmin(-1)
        values = E2M1[codes] * scaled.sign() * exponents.exp2()[..., None]
        codes = (codes + 8 * (scaled < 0)).flatten(1).to(torch.uint8)
        tensors = {
            "weight_packed": codes[:, 0::2] | codes[:, 1::2] << 4,
            "weight_scale": (exponents + 127).to(torch.uint8),
        }
        return tensors, values.flatten(1)


class StackedFp8(Fp8):
    """Experts in one tensor, [experts, inputs, outputs], with one scale for all (ModelOpt) or scales of blocks of
    128 x 128 (Qwen); other layers as in Fp8.
    """

    stacked = True

    def __init__(self, config, ending, **layers):
        super().__init__(config, **layers)
        self.ending = ending

    def pack(self, weight, generator):
        if weight.dim() == 2:
            return super().pack(weight, generator)
        if self.blocks == (None, None):
            scales = wide = weight.abs().max() / 448
        else:
            packed = [super(StackedFp8, self).pack(expert, generator)[0] for expert in weight]
            scales = torch.stack([tensors[self.name] for tensors in packed])
            wide = scales.float().repeat_interleave(128, 1).repeat_interleave(128, 2)
            wide = wide[:, : weight.shape[1], : weight.shape[2]]
        codes = (weight / wide).clamp(-448, 448).to(torch.float8_e4m3fn)
        return {"": codes, self.ending: scales}, codes.float() * wide


class StackedMxFp4(MxFp4):
    """gpt-oss: one tensor for all experts, [experts, inputs, outputs]; quantized values are ordered by output."""

    stacked = True

    def pack(self, weight, generator):
        experts, num_ins, num_outs = weight.shape
        tensors, values = super().pack(weight.transpose(1, 2).flatten(0, 1), generator)
        groups = (experts, num_outs, num_ins // 32)
        stacked = {
            "_blocks": tensors["weight_packed"].reshape(*groups, 16),
            "_scales": tensors["weight_scale"].reshape(groups),
        }
        return stacked, values.reshape(experts, num_outs, num_ins).transpose(1, 2).contiguous()


class Mixed:
    """One scheme per layer: that of the first word that the layer's name contains."""

    def __init__(self, config, schemes):
        self.config = config
        self.schemes = schemes

    def scheme_of(self, name):
        return next(scheme for word, scheme in self.schemes.items() if word in name)


def pack_by_expert(name, weight, scheme, generator):
    """Packs each expert separately, as tools do for a model that had [experts, inputs, outputs]."""
    experts, part = name.rsplit(".", 1)
    parts = ("gate_proj", "up_proj") if part == "gate_up_proj" else (part,)
    stored, values = {}, []
    for index, expert in enumerate(weight):
        values.append([])
        for name, matrix in zip(parts, expert.T.chunk(len(parts))):
            tensors, value = scheme.pack(matrix.contiguous(), generator)
            values[-1].append(value)
            stored |= {f"{experts}.{index}.{name}.{key}": tensor for key, tensor in tensors.items()}
    return stored, torch.stack([torch.cat(each).T for each in values])


def quantize(weights, by, plain, generator):
    """Returns the tensors of the file and their dequantized float32 values. Linear layers with a word of
    `plain` are not quantized."""
    stored, dequantized = {}, {}
    for name, weight in weights.items():
        dequantized[name] = weight.float()
        stored[name] = weight
        layer = name.removesuffix(".weight")
        if "_proj" not in name.rpartition(".weight")[0].rpartition(".")[2] and ".experts." not in name:
            continue
        if any(word in name for word in plain):
            continue
        del stored[name]
        scheme = by.scheme_of(name) if isinstance(by, Mixed) else by
        if weight.dim() == 3 and not getattr(scheme, "stacked", False):
            tensors, dequantized[name] = pack_by_expert(name, weight.float(), scheme, generator)
            stored |= tensors
            continue
        tensors, dequantized[name] = scheme.pack(weight.float(), generator)
        stored |= {
            layer + (key if not key or key.startswith("_") else f".{key}"): tensor for key, tensor in tensors.items()
        }
    return stored, dequantized
