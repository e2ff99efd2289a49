# SPDX-License-Identifier: Apache-2.0
"""How far a sum may be from the exact one, whatever the order of its parts."""

import numpy as np
import numpy.typing as npt

from ..rtl.flits import WIDE, DType
from .moe import MoeLayer, to_float
from .numerics import Bits, is_f16

__all__ = ["far_from_exact"]

_F32 = 2.0**-24
_F32_LEAST = 2.0**-149


def far_from_exact(layer: MoeLayer, outputs: Bits, sums: Bits) -> npt.NDArray[np.bool_]:
    """Mark the elements of `sums` that no order of adding `outputs` gives.

    With *u* the unit roundoff of the type and *s* the sum of the magnitudes of *k* parts, any order
    of *k* - 1 roundings is within *k u s* of the exact sum, to first order; 1 % more allows for the
    rest. Sums in f32 are rounded once more at the end.

    Parameters
    ----------
    layer : MoeLayer
        The layer.
    outputs, sums : ndarray
        Of :meth:`.MoeLayer.outputs`, and what is in question, shape of the tokens.
    """
    values = to_float(layer.dtype, outputs).astype(np.float64)
    exact = np.zeros(layer.tokens.shape, np.float64)
    size = np.zeros(layer.tokens.shape, np.float64)
    np.add.at(exact, layer.token, values)
    np.add.at(size, layer.token, np.abs(values))
    if layer.dtype is DType.F32:
        last, least = 0.0, _F32_LEAST
    else:
        f16 = is_f16(layer.dtype)
        last, least = (2.0**-11, 2.0**-24) if f16 else (2.0**-8, 2.0**-133)
    narrow = layer.dtype is not DType.F32 and layer.dtype not in WIDE
    step = last if narrow else _F32
    bound = 1.01 * (layer.counts[:, None] * step + (0 if narrow else last)) * size
    bound += layer.counts[:, None] * least
    error = np.abs(to_float(layer.dtype, sums) - exact)
    far: npt.NDArray[np.bool_] = ~(error <= bound)
    return far
