"""Make inputs for the Silero voice activity detector, and store what ONNX Runtime says.

    python silero.py MODEL OUT

Both sampling rates, one sound and three at a time. A sound is a buzz of harmonics whose pitch and
loudness move, in noise; the states are those that ONNX Runtime has after a number of frames of it, so
that they are far from zero. Writes OUT/CASE.*.npy and OUT/CASE.expected.npz, and prints a line of JSON
per case: name, inputs (NAME=FILE words), expected.
"""

import json
import pathlib
import sys

import numpy as np

import reference

FRAMES = 24
HARMONICS = 12


def main(model, out):
    out.mkdir(parents=True, exist_ok=True)
    run = reference.runner(model)
    for rate in (16000, 8000):
        for batch in (1, 3):
            inputs, outputs = last_frame(run, rate, batch)
            if not np.abs(outputs["stateN"]).max() > 0.1:
                sys.exit(f"the state hardly differs from zero at {rate} Hz")
            stem = f"{rate}.b{batch}"
            words = []
            for name, array in inputs.items():
                path = out / f"{stem}.{name}.npy"
                np.save(path, array)
                words.append(f"{name}={path}")
            expected = out / f"{stem}.expected.npz"
            reference.write_npz(expected, outputs)
            print(json.dumps({"name": f"{rate} Hz b{batch}", "inputs": words, "expected": str(expected)}))


def last_frame(run, rate, batch):
    """Inputs and outputs of the last of some frames, each with the end of the one before it in front."""
    size, context = rate * 32 // 1000, rate * 4 // 1000
    sounds = np.stack([sound(rate, context + FRAMES * size, seed) for seed in range(batch)])
    state = np.zeros((2, batch, 128), np.float32)
    for frame in range(FRAMES):
        start = frame * size
        inputs = {
            "input": sounds[:, start : start + context + size],
            "state": state,
            "sr": np.array(rate, np.int64),
        }
        outputs = run(inputs)
        state = outputs["stateN"]
    return inputs, outputs


def sound(rate, samples, seed):
    random = np.random.default_rng(seed)
    time = np.arange(samples) / rate
    pitch = 110 * (1 + seed / 2) * (1 + 0.1 * np.sin(2 * np.pi * 3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    buzz = sum(np.sin(k * phase + seed) / k for k in range(1, HARMONICS + 1))
    loudness = 0.2 * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * time))
    return (loudness * buzz + 0.005 * random.standard_normal(samples)).astype(np.float32)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*map(pathlib.Path, sys.argv[1:]))
