"""Files of named arrays."""

import zipfile

import numpy as np


def write_npz(path, arrays):
    """Like np.savez, which cannot write an array named `file`."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            if isinstance(array, np.ndarray) and array.dtype != object:
                with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array)
