"""Write the node tests of all releases of the onnx package from 1.2 on to disk, each once.

    python release_cases.py WHEELS OUT

The wheel of each release is downloaded into WHEELS, whatever Python and machine it is for: only its data is
read. Wheels since 1.23 make the cases when they are asked to, so they are installed beside. A case becomes a directory as `dump_cases.py` writes it:

    OUT/<release>/<case>/model.onnx
    OUT/<release>/<case>/case.json
    OUT/<release>/<case>/test_data_set_<n>/{input,output}_<m>.pb

A case whose files are those of the same case of an earlier release is left out. OUT/releases.tsv lists the
releases: how many cases each has, how many of them are written, or why there are none.
"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

# Version 1.2.0 was never on PyPI.
RELEASES = """
    1.2.1 1.2.2 1.2.3 1.3.0 1.4.0 1.4.1 1.5.0 1.6.0 1.7.0 1.8.0 1.8.1 1.9.0 1.10.0 1.10.1 1.10.2 1.11.0 1.12.0
    1.13.0 1.13.1 1.14.0 1.14.1 1.15.0 1.16.0 1.16.1 1.16.2 1.17.0 1.18.0 1.19.0 1.19.1 1.20.0 1.20.1 1.21.0 1.22.0
    1.23.0 1.23.1 1.23.2
""".split()
# What old wheels were built for, as the present Python would find none.
PYTHONS = (("3.6", "cp36m"), ("3.8", "cp38"), ("3.10", "cp310"))
PLATFORMS = ("manylinux1", "manylinux2010", "manylinux2014", "manylinux_2_17", "manylinux_2_27", "manylinux_2_28")
NODES = "onnx/backend/test/data/node/"
# The tolerances of runners whose cases have none of their own.
TOLERANCES = (json.dumps({"rtol": 1e-3, "atol": 1e-7}) + "\n").encode()


def main(wheels, out):
    wheels.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    lines, seen = [], set()
    for release in RELEASES:
        wheel = download(release, wheels)
        if wheel is None:
            lines.append((release, "0", "0", "no wheel"))
            continue
        cases = cases_of(wheel) or made_by(wheel)
        new = [(name, files) for name, files in cases.items() if is_new(name, files, seen)]
        for name, files in new:
            write(out / release / name, files)
        lines.append((release, str(len(cases)), str(len(new)), "" if cases else "no cases in the wheel"))
    (out / "releases.tsv").write_text("".join("\t".join(line) + "\n" for line in lines))
    # Another runner reads it: none of the files of these wheels are read as files.
    (out / "wheel_files.txt").write_text("")
    for release, count, written, why in lines:
        print(f"{release:8} {count:>5} cases, {written:>5} new {why}".rstrip())


def download(release, wheels):
    """The wheel of a release: one for this Python if there is any."""
    for target in ([], *map(target_of, PYTHONS)):
        found = list(wheels.glob(f"onnx-{release}-*.whl"))
        if found:
            return found[0]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command += ["--no-deps", "--only-binary", ":all:", "--dest", str(wheels), *target, f"onnx=={release}"]
        subprocess.run(command, stderr=subprocess.DEVNULL)
    return next(wheels.glob(f"onnx-{release}-*.whl"), None)


def target_of(python):
    """What tells pip to download for another Python."""
    version, abi = python
    platforms = [f"{platform}_x86_64" for platform in PLATFORMS]
    return [
        *("--implementation", "cp", "--python-version", version, "--abi", abi),
        *(word for platform in platforms for word in ("--platform", platform)),
    ]


def cases_of(wheel):
    """By name, the files of each case: path within it and bytes."""
    cases = {}
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(NODES) and name.endswith((".onnx", ".pb")):
                case, _, path = name.removeprefix(NODES).partition("/")
                cases.setdefault(case, []).append((path, archive.read(name)))
    return {name: files for name, files in cases.items() if any(path == "model.onnx" for path, _ in files)}


def made_by(wheel):
    """The cases that a wheel makes, as `cases_of` gives those that are files."""
    made = wheel.with_suffix(".cases")
    if not made.exists():
        with tempfile.TemporaryDirectory(dir=wheel.parent) as scratch:
            site, cases = f"{scratch}/site", f"{scratch}/cases"
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(site)
            script = pathlib.Path(__file__).with_name("dump_cases.py")
            command = [sys.executable, "-W", "ignore", str(script), cases]
            paths = os.pathsep.join(filter(None, [site, os.environ.get("PYTHONPATH")]))
            subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=True, stdout=subprocess.DEVNULL)
            os.rename(f"{cases}/node", made)
    cases = {}
    for path in sorted(path for path in made.rglob("*") if path.is_file()):
        name, _, rest = path.relative_to(made).as_posix().partition("/")
        cases.setdefault(name, []).append((rest, path.read_bytes()))
    return cases


def is_new(name, files, seen):
    """Whether no release before had the case with these files."""
    digest = hashlib.sha256(name.encode())
    for path, content in sorted(files):
        if path == "case.json":
            continue
        digest.update(f"\0{path}\0{len(content)}\0".encode() + content)
    key = digest.digest()
    if key in seen:
        return False
    seen.add(key)
    return True


def write(directory, files):
    for path, content in [("case.json", TOLERANCES), *files]:
        target = directory / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*map(pathlib.Path, sys.argv[1:]))
