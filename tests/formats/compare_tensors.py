"""Compares our readers and writers of safetensors and npz with the libraries of Python.

    python tests/formats/compare_tensors.py [--files N] [--seed S]

Makes files with random tensors of every type, whole and damaged, lets `crates/formats/examples/rewrite_tensors.rs` read
and write them, and checks that

- a whole safetensors file comes back byte for byte, and a damaged one is refused exactly if the library refuses it or it
  breaks one of the rules that only we enforce;
- a whole npz file comes back with equal arrays, and a damaged one is refused or gives the arrays that NumPy reads; where NumPy
  refuses it, those of the whole file.

Needs safetensors and numpy. Exits with 1 if anything differs.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import safetensors

ROOT = Path(__file__).resolve().parents[2]

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip

# The library's own names of types, which its `serialize` takes.
LIBRARY_NAMES = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "F8_E5M2": "float8_e5m2", "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16", "U16": "uint16", "F16": "float16", "BF16": "bfloat16", "I32": "int32",
    "U32": "uint32", "F32": "float32", "C64": "complex64", "F64": "float64", "I64": "int64", "U64": "uint64",
}  # fmt: skip

NUMPY_TYPES = ["?", "i1", "u1", "<i2", ">u2", "<f2", "<i4", ">i4", "<u4", "<f4", ">f8", "<i8", "<u8", "<c8", "<c16", "<U3", "S2"]


def random_name(rng):
    return "".join(rng.choice("abwXZ019._/ é\"\\\n漢\u0001") for _ in range(rng.randint(0, 9)))


def random_shape(rng):
    return [rng.choice([0, 1, 1, 2, 3, 4, 8]) for _ in range(rng.randint(0, 4))]


def random_safetensors(rng):
    tensors, kept = {}, []
    for _ in range(rng.randint(0, 6)):
        name, shape = rng.choice(list(LIBRARY_NAMES)), random_shape(rng)
        data = np.frombuffer(rng.randbytes(int(np.prod(shape, dtype=int)) * BITS[name] // 8), np.uint8)
        kept.append(data)  # the library takes an address
        tensors[random_name(rng)] = safetensors.TensorSpec(
            dtype=LIBRARY_NAMES[name], shape=shape, data_ptr=data.ctypes.data, data_len=data.nbytes
        )
    # More than one entry the library writes in an order that changes from run to run.
    metadata = {random_name(rng): random_name(rng)} if rng.random() < 0.5 else None
    return bytes(safetensors.serialize(tensors, metadata=metadata))


def small_types(rng):
    """A file with elements below a byte, which Python's library reads but cannot make."""
    name = rng.choice(["F4", "F6_E2M3", "F6_E3M2"])
    shape = [rng.choice([1, 2, 4, 3]), rng.choice([1, 4, 8])]
    size = -(-shape[0] * shape[1] * BITS[name] // 8)
    header = json.dumps({"w": {"dtype": name, "shape": shape, "data_offsets": [0, size]}}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + rng.randbytes(size)


def damaged(rng, data):
    data = bytearray(data)
    for _ in range(rng.randint(1, 2)):
        at = rng.randrange(len(data)) if data else 0
        match rng.randint(0, 5):
            case 0:
                del data[at:]
            case 1:
                data += rng.randbytes(rng.randint(1, 9))
            case 2:
                digits = [i for i, byte in enumerate(data) if chr(byte).isdigit()]
                if digits:
                    data[rng.choice(digits)] = ord(rng.choice("0123456789"))
            case 3:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 4:
                data[at:at] = rng.choice([b" ", b"0", b"[", b'"', b"9" * 20, b","])
            case 5:
                del data[at : at + rng.randint(1, 4)]
        if len(data) >= 8 and rng.random() < 0.7:
            # So that more than the length of the header is wrong.
            end = data.rfind(b"}")
            if end > 8:
                data[:8] = (end + 1 - 8).to_bytes(8, "little")
    return bytes(data)


def library_accepts(data):
    try:
        safetensors.deserialize(data)
    except Exception:
        return False
    return True


def stricter(error):
    """Whether we refuse a file for a reason that the library does not have."""
    rules = ["does not begin with '{'", "occurs twice", "can be addressed"]
    # The library takes `null` for no metadata.
    return any(rule in error for rule in rules) or re.search("null, expected strings by name", error)


def random_npz(rng, path):
    arrays = {}
    for i in range(rng.randint(0, 4)):
        dtype = np.dtype(rng.choice(NUMPY_TYPES))
        shape = random_shape(rng)
        if dtype.kind in "US":
            array = np.array([rng.choice(["", "a", "xyz"]) for _ in range(int(np.prod(shape, dtype=int)))], dtype).reshape(shape)
        else:
            array = np.frombuffer(rng.randbytes(int(np.prod(shape, dtype=int)) * dtype.itemsize), dtype).reshape(shape)
            if dtype.kind == "b":
                array = array.view("u1") % 2 == 1
        if rng.random() < 0.3:
            array = np.asfortranarray(array)
        arrays[f"é{i}" if rng.random() < 0.2 else f"a{i}"] = array
    rng.choice([np.savez, np.savez_compressed])(path, **arrays)
    return arrays


def numpy_reads(path):
    try:
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files}
    except Exception:
        return None


def same_arrays(ours, theirs):
    def plain(array):
        # Strings come back wider or as text, numbers in another byte order; their values count.
        if array.dtype.kind == "S":
            return np.char.decode(array, "utf-8") if array.size else array.astype("U1")
        return array.astype(array.dtype.newbyteorder("="))

    def equal(a, b):
        a, b = plain(a), plain(b)
        if a.shape != b.shape or a.dtype.kind != b.dtype.kind:
            return False
        return bool((a == b).all()) if a.dtype.kind == "U" else a.dtype == b.dtype and a.tobytes() == b.tobytes()

    return ours.keys() == theirs.keys() and all(equal(ours[name], theirs[name]) for name in ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=400, help="files of each kind")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as directory:
        return compare(Path(directory), arguments.files, rng)


def compare(directory, files, rng):
    arrays = {}
    for i in range(files):
        whole = random_safetensors(rng) if rng.random() < 0.9 else small_types(rng)
        (directory / f"{i}-whole.safetensors").write_bytes(whole)
        for j in range(8):
            (directory / f"{i}-{j}-damaged.safetensors").write_bytes(damaged(rng, whole))
        path = directory / f"{i}-whole.npz"
        arrays[path.name] = random_npz(rng, path)
        (directory / f"{i}-damaged.npz").write_bytes(damaged(rng, path.read_bytes()))
    command = ["cargo", "run", "--quiet", "-p", "sardonyx-formats", "--example", "rewrite_tensors", "--", str(directory)]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    outcomes = dict(line.split("\t", 1) for line in lines)

    differences, refused = 0, 0

    def differs(name, what):
        nonlocal differences
        differences += 1
        print(f"{name}: {what}")
        if differences <= 10:
            kept = Path(tempfile.gettempdir()) / f"differs-{name}"
            kept.write_bytes((directory / name).read_bytes())
            print(f"  kept as {kept}")

    for name, outcome in outcomes.items():
        data = (directory / name).read_bytes()
        again = directory / f"{name}.out"
        refused += outcome != "ok"
        if name.endswith(".safetensors"):
            theirs = library_accepts(data)
            if theirs != (outcome == "ok") and not stricter(outcome):
                differs(name, f"the library {'reads' if theirs else 'refuses'} it, we say: {outcome}")
            elif "whole" in name and outcome == "ok" and again.read_bytes() != data:
                differs(name, "it came back with other bytes")
            elif outcome == "ok" and not library_accepts(again.read_bytes()):
                differs(name, "the library refuses what we wrote")
        else:
            theirs = arrays.get(name) or numpy_reads(directory / name)
            if "whole" in name and outcome != "ok":
                differs(name, f"refused: {outcome}")
            elif outcome == "ok" and theirs is not None and not same_arrays(numpy_reads(again), theirs):
                differs(name, "it came back with other arrays")
            elif outcome == "ok" and theirs is None:
                # Bytes before and after the archive NumPy does not take; then the arrays must be the right ones.
                whole = arrays[name.replace("damaged", "whole")]
                if not same_arrays(numpy_reads(again), whole):
                    differs(name, "NumPy refuses it, we read other arrays")
    print(f"{len(outcomes)} files, {refused} refused by us, {differences} differences")
    return 1 if differences or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
