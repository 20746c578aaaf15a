"""Vectors of eight numbers for compiled code.

Auto-vectorization is not reliable in the innermost loops; these operations are explicit. Eight
lanes are one register with AVX, two with SSE or NEON; sums have the same order on any machine.

Arrays must be flat and contiguous, indices unsigned: nothing is checked.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model

LANES = 8

_INT = ir.IntType(32)
_IR_TYPES = {types.float32: ir.FloatType(), types.float64: ir.DoubleType()}
_SUFFIX = {types.float32: "v8f32", types.float64: "v8f64"}
# Three rounds of pairwise exchanges transpose an 8 x 8 matrix: (partner, lanes retained, lanes
# sent). Within halves of a register first, because crossing its middle is slower.
_EXCHANGES = (
    (1, (0, 8, 1, 9, 4, 12, 5, 13), (2, 10, 3, 11, 6, 14, 7, 15)),
    (2, (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    (4, (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
)
_TURNED = (0, 2, 1, 3, 4, 6, 5, 7)


class Vector(types.Type):
    """Eight numbers of one type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype
        super().__init__(name=f"Vector8({dtype})")


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """In compiled code: a vector of the machine."""

    def __init__(self, dmm: Any, fe_type: Vector) -> None:
        super().__init__(dmm, fe_type, _ir_vector(fe_type))


def _ir_vector(vector: Vector) -> ir.VectorType:
    return ir.VectorType(_IR_TYPES[vector.dtype], LANES)


def _lanes(numbers: Any) -> ir.Constant:
    return ir.Constant(ir.VectorType(_INT, len(numbers)), list(numbers))


def _element(context, builder, sig, args):
    """Address of element args[1] of the array args[0]."""
    index = context.cast(builder, args[1], sig.args[1], types.uintp)
    data = context.make_array(sig.args[0])(context, builder, args[0]).data
    return builder.gep(data, [index])


def _address(context, builder, sig, args):
    """Address of the vector that begins with element args[1] of the array args[0]."""
    pointer = _ir_vector(Vector(sig.args[0].dtype)).as_pointer()
    return builder.bitcast(_element(context, builder, sig, args), pointer)


@intrinsic
def load(typingctx, array, index):
    """array[index : index + 8]."""
    align = array.dtype.bitwidth // 8

    def codegen(context, builder, sig, args):
        return builder.load(_address(context, builder, sig, args), align=align)

    return Vector(array.dtype)(array, index), codegen


@intrinsic
def store(typingctx, array, index, vector):
    """array[index : index + 8] = vector."""
    align = array.dtype.bitwidth // 8

    def codegen(context, builder, sig, args):
        builder.store(args[2], _address(context, builder, sig, args), align=align)
        return context.get_dummy_value()

    return types.void(array, index, Vector(array.dtype)), codegen


@intrinsic
def splat(typingctx, x):
    """One number in all lanes: np.full(8, x)."""

    def codegen(context, builder, sig, args):
        undefined = ir.Constant(_ir_vector(sig.return_type), ir.Undefined)
        one = builder.insert_element(undefined, args[0], ir.Constant(_INT, 0))
        return builder.shuffle_vector(one, undefined, _lanes([0] * LANES))

    return Vector(x)(x), codegen


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, in one instruction where the machine has it; of vectors or of single numbers."""

    def codegen(context, builder, sig, args):
        kind = context.get_value_type(sig.return_type)
        suffix = _SUFFIX[a.dtype] if isinstance(a, Vector) else f"f{a.bitwidth}"
        name = f"llvm.fmuladd.{suffix}"
        function = ir.FunctionType(kind, [kind] * 3)
        return builder.call(builder.module.declare_intrinsic(name, fnty=function), args)

    return a(a, b, c), codegen


def _lane_by_lane(symbol: Any, operation: str) -> None:
    """Give vectors one of the four operators of arithmetic."""

    @intrinsic
    def compute(typingctx, a, b):
        def codegen(context, builder, sig, args):
            return getattr(builder, operation)(*args)

        return a(a, b), codegen

    @overload(symbol)
    def chosen(a, b):
        if isinstance(a, Vector) and isinstance(b, Vector):
            return lambda a, b: compute(a, b)
        return None


_lane_by_lane(operator.add, "fadd")
_lane_by_lane(operator.sub, "fsub")
_lane_by_lane(operator.mul, "fmul")
_lane_by_lane(operator.truediv, "fdiv")


@intrinsic
def root(typingctx, a):
    """np.sqrt of a vector."""

    def codegen(context, builder, sig, args):
        kind = _ir_vector(sig.return_type)
        name = f"llvm.sqrt.{_SUFFIX[sig.return_type.dtype]}"
        function = ir.FunctionType(kind, [kind])
        return builder.call(builder.module.declare_intrinsic(name, fnty=function), args)

    return a(a), codegen


@intrinsic
def larger(typingctx, a, b):
    """The larger of two, lane by lane; b where a is NaN."""

    def codegen(context, builder, sig, args):
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return a(a, b), codegen


@intrinsic
def total(typingctx, vector):
    """Sum of the lanes: halves are added until one is left."""

    def codegen(context, builder, sig, args):
        (v,), n = args, LANES
        while n > 1:
            n //= 2
            low = builder.shuffle_vector(v, v, _lanes(range(n)))
            high = builder.shuffle_vector(v, v, _lanes(range(n, 2 * n)))
            v = builder.fadd(low, high)
        return builder.extract_element(v, ir.Constant(_INT, 0))

    return vector.dtype(vector), codegen


@intrinsic
def transpose(typingctx, v0, v1, v2, v3, v4, v5, v6, v7):
    """np.stack((v0, ..., v7)).T, as eight vectors."""

    def codegen(context, builder, sig, args):
        rows = list(args)
        for partner, retained, sent in _EXCHANGES:
            for i in range(LANES):
                if not i & partner:
                    pair = rows[i], rows[i | partner]
                    rows[i] = builder.shuffle_vector(*pair, _lanes(retained))
                    rows[i | partner] = builder.shuffle_vector(*pair, _lanes(sent))
        return context.make_tuple(builder, sig.return_type, [rows[i] for i in _TURNED])

    return types.UniTuple(v0, LANES)(v0, v1, v2, v3, v4, v5, v6, v7), codegen


@intrinsic
def recast(typingctx, x):
    """The number with the bits of another: uint64 of float64, and the other way round."""
    to = types.uint64 if x == types.float64 else types.float64

    def codegen(context, builder, sig, args):
        return builder.bitcast(args[0], context.get_value_type(to))

    return to(x), codegen


@intrinsic
def prefetch(typingctx, array, index):
    """Prefetch the cache line of array[index]."""

    def codegen(context, builder, sig, args):
        pointer = builder.bitcast(_element(context, builder, sig, args), ir.IntType(8).as_pointer())
        function = ir.FunctionType(ir.VoidType(), [pointer.type, _INT, _INT, _INT])
        name = (
            "llvm.prefetch.p0"
            if getattr(pointer.type, "is_opaque", False)
            else "llvm.prefetch.p0i8"
        )
        prefetching = builder.module.declare_intrinsic(name, fnty=function)
        # For reading, to stay in all caches, data.
        builder.call(prefetching, [pointer, *(ir.Constant(_INT, n) for n in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, index), codegen
