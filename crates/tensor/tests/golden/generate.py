"""Writes decode.txt, encode.txt and encode64.txt beside itself. Needs onnx >= 1.23 with ml_dtypes.

The values are those of the ONNX reference (ml_dtypes and onnx.numpy_helper), except where the reference contradicts the
documentation or itself; each exception is a line marked DIFFERS below, with its reason.
"""

import bisect
import math
import os
import random
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
from onnx import numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
SMALL = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
    "float6e2m3": ml_dtypes.float6_e2m3fn,
    "float6e3m2": ml_dtypes.float6_e3m2fn,
}
BITS = {name: int(name[5]) for name in SMALL}


def bits32(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def decode(dtype, bits):
    return np.arange(1 << bits, dtype=np.uint8).view(dtype).astype(np.float32)


def write_decode():
    with open(os.path.join(HERE, "decode.txt"), "w") as out:
        out.write("# type, first code, f32 bit patterns of 8 codes in a row; generate.py\n")
        for name, dtype in {**SMALL, "float8e8m0": ml_dtypes.float8_e8m0fnu}.items():
            words = decode(dtype, BITS.get(name, 8)).view(np.uint32)
            for i in range(0, len(words), 8):
                row = " ".join(f"{w:08x}" for w in words[i : i + 8])
                out.write(f"{name} {i} {row}\n")


def patterns():
    """f32 bit patterns: every code, every tie between codes, their neighbours, specials, random ones."""
    found = {0, 0x7F800000, 0x7FC00000, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x400000, 0x3FFFFF, 0x400001, 0x600000, 0x5FFFFF}
    for name, dtype in SMALL.items():
        finite = sorted({float(v) for v in decode(dtype, BITS[name]) if math.isfinite(v) and v >= 0})
        finite.append(2 * finite[-1] - finite[-2])
        finite.append(finite[-1] * 2)
        for a, b in zip(finite, finite[1:]):
            for value in (a, (a + b) / 2):
                word = bits32(value)
                found |= {word, word + 1, max(word - 1, 0)}
    for exponent in (0, 1, 2, 60, 120, 126, 127, 128, 200, 252, 253, 254):
        for fraction in (0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF):
            found.add(exponent << 23 | fraction)
    rng = random.Random(20)
    found |= {rng.getrandbits(31) % 0x7F800000 for _ in range(150)}
    found |= {rng.randrange(bits32(2.0**-20), bits32(1e5)) for _ in range(300)}
    words = sorted(found)
    return np.array(words + [w | 1 << 31 for w in words], dtype=np.uint32)


def e8m0(x, saturate, mode):
    """From the table in the documentation of Cast; x is a float."""
    if math.isnan(x) or (x < 0):
        return 255  # DIFFERS for x < 0: unspecified; the reference drops the sign, ml_dtypes gives NaN as we do
    if x == 0:
        return 0 if saturate else 255  # DIFFERS without saturate: the reference gives 0, the table NaN
    if math.isinf(x):
        return 254 if saturate else 255  # DIFFERS with saturate: the reference gives NaN, the table the maximum
    mantissa, exponent = math.frexp(x)
    exponent -= 1
    up = {"up": mantissa != 0.5, "down": False, "nearest": mantissa >= 0.75}[mode]
    code = exponent + up + 127
    if 0 <= code <= 254:
        return code
    return (0 if code < 0 else 254) if saturate else 255  # DIFFERS below the range without saturate, as for 0


def check_e8m0(words):
    """Our rule is that of the reference where that agrees with the table: for normal numbers."""
    x = np.array([w for w in words if 0x800000 <= w < 0x7F800000], dtype=np.uint32).view(np.float32)
    for mode in ("up", "down", "nearest"):
        for saturate in (True, False):
            want = numpy_helper.to_float8e8m0(x, saturate, mode).view(np.uint8)
            ours = np.array([e8m0(float(v), saturate, mode) for v in x], dtype=np.uint8)
            assert (want == ours).all(), (mode, saturate)


def write_encode():
    words = patterns()
    check_e8m0(words)
    x = words.view(np.float32)
    nan = np.isnan(x)
    columns = {}
    with np.errstate(all="ignore"):
        for name, dtype in SMALL.items():
            plain = x.astype(dtype).view(np.uint8)
            saturated = numpy_helper.saturate_cast(x, dtype).view(np.uint8)
            if name.startswith("float8"):
                columns[name, "saturate"], columns[name, "plain"] = saturated, plain
                continue
            if name == "float4e2m1":
                plain[nan] = 0x8  # DIFFERS for -NaN: the reference gives 0, for NaN 0x8; we drop the sign
            else:
                plain[nan] = 0x1F  # DIFFERS: the reference gives zero, the documentation of float6 the maximum
            columns[name, "saturate"] = plain
    for mode in ("up", "down", "nearest"):
        for saturate in (True, False):
            codes = np.array([e8m0(float(v), saturate, mode) for v in x], dtype=np.uint8)
            columns["float8e8m0", ("saturate" if saturate else "plain") + "," + mode] = codes
    with open(os.path.join(HERE, "encode.txt"), "w") as out:
        out.write("# f32 bit pattern, then the code in each of these; generate.py\n")
        out.write("columns " + " ".join(f"{name}/{how}" for name, how in columns) + "\n")
        for i, word in enumerate(words):
            out.write(f"{word:08x} " + " ".join(f"{column[i]:02x}" for column in columns.values()) + "\n")


def nearest(value, table):
    """Exact rounding to nearest, ties to even, of a nonnegative Fraction to (values, codes); beyond the end is the end."""
    values, codes = table
    if value >= values[-1]:
        return codes[-1]
    i = bisect.bisect_right(values, value) - 1
    low, high = value - values[i], values[i + 1] - value
    if low == high:
        return codes[i] if codes[i] % 2 == 0 else codes[i + 1]
    return codes[i] if low < high else codes[i + 1]


def write_encode64():
    """f64 sources close to ties, where rounding through f32 goes wrong. Exact arithmetic; the reference rounds twice."""
    rng = random.Random(64)
    with open(os.path.join(HERE, "encode64.txt"), "w") as out:
        out.write("# type, f64 bit pattern, code with saturate; generate.py\n")
        for name, dtype in SMALL.items():
            values = decode(dtype, BITS[name])
            pairs = sorted((Fraction(float(v)), c) for c, v in enumerate(values) if np.isfinite(v) and not np.signbit(v))
            table = [v for v, _ in pairs], [c for _, c in pairs]
            ties = [(a + b) / 2 for a, b in zip(table[0], table[0][1:])]
            for tie in rng.sample(ties, min(len(ties), 20)):
                for factor in (1, 1 + 2.0**-40, 1 - 2.0**-40, 1 + 2.0**-52, 1 - 2.0**-53):
                    x = float(tie) * factor
                    word = struct.unpack("<Q", struct.pack("<d", x))[0]
                    out.write(f"{name} {word:016x} {nearest(Fraction(x), table):02x}\n")


write_decode()
write_encode()
write_encode64()
