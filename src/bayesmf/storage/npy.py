"""Headers of .npy files, read by a parser that knows what we write and nothing else.

NumPy's own evaluates a Python expression and makes whatever type it names; some of those (an empty
void type) divide by zero in compiled code. Here a header is a type of plain numbers, a shape, and
the bytes that follow from both; anything else is no array file.
"""

from __future__ import annotations

import io
import math
import os
import re
import struct
from typing import IO, Any, NamedTuple

import numpy as np

# More than a shape of any array that there can be takes.
MOST_HEADER = 4096
MOST_AXES = 8

_MAGIC = b"\x93NUMPY\x01\x00"
_PREAMBLE = len(_MAGIC) + 2
_HEADER = re.compile(
    rb"\{'descr': '(<[iu][248]|<f[48]|\|[iu]1|\|b1)', 'fortran_order': False, "
    rb"'shape': \(((?:[0-9]{1,15}, )*[0-9]{1,15},?)?\), \} *\n"
)


class NoArray(ValueError):
    """It is not an array file of ours; the text says why."""


class Header(NamedTuple):
    """What an array file holds, and where its numbers begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Bytes of the whole file."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


def read_header(stream: IO[bytes]) -> Header:
    """Read the header at the beginning of a stream, and nothing behind it.

    Parameters
    ----------
    stream : binary file
        Where an .npy file begins.

    Returns
    -------
    Header
        The stream is then where the numbers begin.

    Raises
    ------
    NoArray
        If it is not a header as `numpy.save` writes it for plain numbers in C order.
    """
    preamble = stream.read(_PREAMBLE)
    if len(preamble) < _PREAMBLE or not preamble.startswith(_MAGIC):
        raise NoArray("it does not begin as an .npy file does")
    (length,) = struct.unpack("<H", preamble[len(_MAGIC) :])
    if length > MOST_HEADER:
        raise NoArray("its header is too long")
    found = _HEADER.fullmatch(stream.read(length))
    if found is None:
        raise NoArray("its header is not one of plain numbers")
    shape = tuple(int(n) for n in (found[2] or b"").replace(b",", b" ").split())
    if len(shape) > MOST_AXES or math.prod(n or 1 for n in shape) >= 1 << 60:
        raise NoArray("its shape cannot be that of an array")
    return Header(np.dtype(found[1].decode()), shape, _PREAMBLE + length)


def header_bytes(dtype: Any, shape: tuple[int, ...]) -> bytes:
    """The beginning of an array file, as `read_header` reads it: in C order, little-endian."""
    header = io.BytesIO()
    descr = np.dtype(dtype).newbyteorder("<").str
    about = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    return header.getvalue()


def map_array(stream: IO[bytes], mode: str = "r") -> np.memmap[Any, Any]:
    """Map the array of a file whose size is that of its header.

    Parameters
    ----------
    stream : binary file
        A regular file, open for reading.
    mode : {"r", "c"}
        Read-only, or such that writing changes memory alone.

    Raises
    ------
    NoArray
        If it is not an array file, or longer or shorter than it says.
    """
    header = measured_header(stream)
    return np.memmap(stream, header.dtype, mode, header.offset, header.shape)  # type: ignore[call-overload, no-any-return]


def read_array(stream: IO[bytes]) -> np.ndarray[Any, Any]:
    """Read the array of a file into memory; as `map_array` else."""
    header = measured_header(stream)
    array = np.empty(header.shape, header.dtype)
    room = memoryview(array.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
    while len(room):
        got = stream.readinto(room)  # type: ignore[attr-defined]
        if not got:
            raise NoArray("it ends before its array does")
        room = room[got:]
    return array


def measured_header(stream: IO[bytes]) -> Header:
    """Read the header of a file that is as long as it says."""
    stream.seek(0)
    header, found = read_header(stream), os.fstat(stream.fileno()).st_size
    if header.size != found:
        raise NoArray(f"it has {found} bytes where its header speaks of {header.size}")
    return header
