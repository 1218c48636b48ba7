"""Make inputs for the Magika file-type model from files on this machine, and store what ONNX Runtime says.

    python magika.py MODEL CONFIG.json OUT CHECKOUT

Of each kind of file the first by path is taken, so the same machine gives the same files. Each is a
batch of its own; the first sixteen are also one batch. Writes OUT/CASE.npy, OUT/CASE.expected.npz and
OUT/labels.txt, and prints a line of JSON per case: name, files, inputs (NAME=FILE words), expected.
"""

import json
import os
import pathlib
import sys

import numpy as np

import reference

SUFFIXES = """
.a .avi .bat .bmp .bz2 .c .class .cmake .cpp .crt .css .csv .db .deb .desktop .diff .docx .f90 .gif .go .gz .h .hpp .html
.ico .ini .ipynb .jar .java .jpg .js .json .jsonl .lock .lua .m4 .md .mo .mp3 .npy .npz .o .ogg .onnx .otf .patch .pb .pdf
.pem .php .pl .pm .png .po .proto .ps .py .pyc .pyi .pyx .rb .rs .rst .scss .sh .so .sql .svg .tar .tcl .tex .tiff .toml
.ts .ttf .txt .wasm .wav .webp .whl .woff .woff2 .xml .xz .yaml .yml .zip
""".split()
NAMES = ["CMakeLists.txt", "Dockerfile", "Makefile", ".gitattributes", ".gitignore"]
SMALLEST, LARGEST = 64, 64 << 20
FEWEST, BATCH = 30, 16


def main(model, config, out, checkout):
    out.mkdir(parents=True, exist_ok=True)
    config = json.loads(config.read_text())
    (out / "labels.txt").write_text("".join(f"{label}\n" for label in config["target_labels_space"]))
    found = find_files(checkout)
    if len(found) < FEWEST:
        sys.exit(f"files of only {len(found)} kinds on this machine: {', '.join(found)}")
    run = reference.runner(model)
    rows = {kind: features(path.read_bytes(), config) for kind, path in found.items()}
    cases = [(kind, [kind]) for kind in rows] + [(f"batch of {BATCH}", list(rows)[:BATCH])]
    for name, kinds in cases:
        inputs = {"bytes": np.array([rows[kind] for kind in kinds], np.int32)}
        stem = name.replace(" ", "_")
        np.save(out / f"{stem}.npy", inputs["bytes"])
        expected = out / f"{stem}.expected.npz"
        reference.write_npz(expected, run(inputs))
        case = {
            "name": name,
            "files": [str(found[kind]) for kind in kinds],
            "inputs": [f"bytes={out / stem}.npy"],
            "expected": str(expected),
        }
        print(json.dumps(case))


def features(content, config):
    """The start and the end of a file without the white space around them, filled up with the padding token."""
    block, padding = config["block_size"], config["padding_token"]
    size = config["beg_size"]
    start = list(content[:block].lstrip()[:size])
    start = start + [padding] * (size - len(start))
    size = config["end_size"]
    end = list(content[-block:].rstrip()[-size:])
    return start + [padding] * (size - len(end)) + end


def find_files(checkout):
    cargo = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo"))
    left_out = [checkout / "target", checkout / ".git"]
    found = {}
    for root in [checkout, cargo / "registry/src", pathlib.Path("/usr"), pathlib.Path(sys.prefix)]:
        for path in walk(root, left_out):
            kind = kind_of(path)
            if kind and kind not in found and SMALLEST <= path.stat().st_size <= LARGEST:
                found[kind] = path
    return dict(sorted(found.items()))


def walk(root, left_out):
    for directory, directories, files in os.walk(root):
        directories[:] = sorted(name for name in directories if pathlib.Path(directory, name) not in left_out)
        for name in sorted(files):
            path = pathlib.Path(directory, name)
            if path.is_file() and not path.is_symlink() and os.access(path, os.R_OK):
                yield path


def kind_of(path):
    if path.name in NAMES:
        return path.name
    if path.suffix in SUFFIXES:
        return path.suffix
    if not path.suffix and path.parent.name == "bin":
        with path.open("rb") as file:
            return {b"\x7fELF": "ELF", b"#!/b": "script"}.get(file.read(4))
    return None


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*map(pathlib.Path, sys.argv[1:]))
