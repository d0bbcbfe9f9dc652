"""Opening HDF5 files of strangers: nothing outside the file is read, and nothing larger than the memory is begun."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from koopax._untrusted import check_expansion


@contextmanager
def open_hdf5(path: Path) -> Iterator[Any]:
    """An HDF5 file whose datasets lie in it; raises ValueError where one points elsewhere, which HDF5 would follow."""
    import h5py

    with h5py.File(path, "r") as file:
        check_expansion(path.stat().st_size, sum(dataset.nbytes for dataset in _datasets(file, "")))
        yield file


def _datasets(group: Any, place: str) -> Iterator[Any]:
    """All datasets in a group and those in it."""
    import h5py

    for name in group:
        here = f"{place}/{name}"
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            raise ValueError(f"{here} is a link to another place")
        found = group[name]
        if isinstance(found, h5py.Group):
            if here.count("/") > 20:
                raise ValueError(f"{here} is nested too deeply")
            yield from _datasets(found, here)
        elif isinstance(found, h5py.Dataset):
            if found.external or found.is_virtual:
                raise ValueError(f"{here} is stored in another file")
            yield found
