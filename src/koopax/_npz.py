"""Arrays of `.npz` files from anywhere; apart from `koopax._untrusted`, so that commands start without NumPy."""

import math
import zipfile
from pathlib import Path

import numpy as np

from koopax._untrusted import check_expansion


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an `.npz`, compressed or not, by name.

    Unlike `numpy.load` it takes no memory before it knows that the file is as large as it says, and raises where a
    checksum of the archive does not fit. Raises anything: use it inside `reading`.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        check_expansion(path.stat().st_size, sum(member.file_size for member in members))
        return {member.filename.removesuffix(".npy"): _read_member(archive, member) for member in members}


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(member) as file:
        read_header = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }.get(np.lib.format.read_magic(file))
        if read_header is None:
            raise ValueError(f"{member.filename} has a format that NumPy uses for nothing but records")
        shape, fortran_order, dtype = read_header(file)
        if dtype.hasobject or not dtype.itemsize:
            raise ValueError(f"{member.filename} is of the type {dtype}, not of numbers or text")
        size = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size != member.file_size - file.tell():
            raise ValueError(f"{member.filename} has another size than its shape {shape} asks for")
        content = memoryview(bytearray(size))
        done = 0
        while done < size:
            piece = file.read(min(1 << 20, size - done))
            if not piece:
                raise ValueError(f"{member.filename} is cut off")
            content[done : done + len(piece)] = piece
            done += len(piece)
        file.read(1)  # the end, where the checksum is compared
    return np.ndarray(shape, dtype, content, order="F" if fortran_order else "C")
