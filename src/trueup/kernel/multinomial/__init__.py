"""Multinomial modes and draws whose weights are noisy counts.

Here: exact comparisons of products beyond 64 bits, for compiled kernels.

Counts go up to 2^62, so a product of two of them needs 124 bits. LLVM has 128-bit integers
and Numba does not, hence three intrinsics: one multiplication each on current processors.
"""

# pyright: reportIndexIssue=false, reportAttributeAccessIssue=false, reportCallIssue=false
from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_WIDE = ir.IntType(128)


def _product(builder, left, right):
    return builder.mul(builder.zext(left, _WIDE), builder.zext(right, _WIDE))


@intrinsic
def product_exceeds(typingctx, a, b, c, d):
    """Return True if `a b > c d`, exactly, for unsigned (or nonnegative) 64-bit integers."""

    def codegen(context, builder, signature, args):
        return builder.icmp_unsigned(">", _product(builder, *args[:2]), _product(builder, *args[2:]))

    return types.boolean(types.uint64, types.uint64, types.uint64, types.uint64), codegen


@intrinsic
def products_equal(typingctx, a, b, c, d):
    """Return True if `a b = c d`, exactly, for unsigned (or nonnegative) 64-bit integers."""

    def codegen(context, builder, signature, args):
        return builder.icmp_unsigned("==", _product(builder, *args[:2]), _product(builder, *args[2:]))

    return types.boolean(types.uint64, types.uint64, types.uint64, types.uint64), codegen


@intrinsic
def scaled_floor(typingctx, count, mantissa, shift):
    """Return `floor(count * mantissa / 2^shift)` for 0 <= shift < 128."""

    def codegen(context, builder, signature, args):
        shifted = builder.lshr(_product(builder, args[0], args[1]), builder.zext(args[2], _WIDE))
        return builder.trunc(shifted, ir.IntType(64))

    return types.int64(types.uint64, types.uint64, types.uint64), codegen
