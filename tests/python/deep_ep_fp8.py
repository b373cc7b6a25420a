"""fp8 e4m3 rows per 128 channels, from the definition: a table of the 127 magnitudes."""

import torch

MAGNITUDES = torch.tensor(
    [(code & 7) / 8 * 2.0**-6 if code < 8 else (1 + (code & 7) / 8) * 2.0 ** ((code >> 3) - 7)
     for code in range(127)], dtype=torch.float64)


def encode(values):
    """float32 to bytes: nearest, ties to even, saturating at 448."""
    magnitude = values.double().abs().clamp(max=448.0)
    above = torch.searchsorted(MAGNITUDES, magnitude).clamp(max=126)
    below = (above - 1).clamp(min=0)
    to_above, to_below = MAGNITUDES[above] - magnitude, magnitude - MAGNITUDES[below]
    is_below = (to_below < to_above) | ((to_below == to_above) & (below % 2 == 0))
    code = torch.where(is_below, below, above)
    sign = torch.where(torch.signbit(values), 128, 0)
    return (code + sign).to(torch.uint8)


def decode(codes):
    magnitude = MAGNITUDES[(codes & 127).long()].float()
    return torch.where(codes >= 128, -magnitude, magnitude)


def quantise(x, round_scale):
    """bf16 [T, H] to bytes [T, H] and float32 scales [T, H / 128]."""
    groups = x.float().unflatten(1, (-1, 128))
    amax = groups.abs().amax(dim=2).clamp(min=1e-4)
    inverse = amax * torch.tensor(1.0 / 448.0, dtype=torch.float32)
    factor = torch.tensor(448.0, dtype=torch.float32) / amax
    if round_scale:
        exponent = torch.ceil(torch.log2(inverse.double())).float()
        inverse, factor = torch.exp2(exponent), torch.exp2(-exponent)
    return encode(groups * factor.unsqueeze(2)).flatten(1), inverse


def as_ue8m0(scales):
    """Powers of two to int32 words of four exponents, the first in the lowest byte."""
    exponents = (scales.view(torch.int32) >> 23) & 255
    words = torch.nn.functional.pad(exponents, (0, -exponents.size(1) % 4)).unflatten(1, (-1, 4))
    return (words << torch.tensor([0, 8, 16, 24], dtype=torch.int32)).sum(dim=2, dtype=torch.int32)
