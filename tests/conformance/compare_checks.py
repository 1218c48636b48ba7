"""Compare what our checker refuses with what `onnx.checker.check_model` refuses.

    python compare_checks.py COMMAND CASES DIRECTORY

COMMAND is the program `sardonyx`, CASES the directory that `dump_cases.py` writes. DIRECTORY gets the models of `broken_models.py`.
Each model is checked by the reference, by ours as the reference would (`--like-onnx`), by ours as it is, and with `--strict`;
and by both with a full check, which infers types as well (`full_check=True`, `--like-onnx --full`; listed under `full/`). Where the verdicts differ, `check_expectations.txt` says so and why; what is not there, or there and not so, fails the comparison.

So do codes that no model shows to be what they say: one that is shared with the reference must be the only finding of a model
that the reference refuses; one that it sees with a full check only, that of a model that it refuses with a full check only; any
other must be found in a model that the reference accepts.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import onnx

import broken_models

EXPECTATIONS = pathlib.Path(__file__).parent / "check_expectations.txt"
# Files of one call of the command: the length of a command line is bounded.
BATCH = 4000
# Differences that are listed before the rest is only counted.
SHOWN = 40
# Models that are checked with operators of all domains, not only of the standard's.
ALL_DOMAINS = "all-domains"

# What can be the matter with a verdict: ours like the reference's against the reference's, and ours as it is.
STRICTER = "we refuse"
LAXER = "we accept"
SILENT = "we say nothing"
# What can be the matter with a code: it is listed under this name, with this in place of a verdict.
CODE = "code/"
# Verdicts of full checks are listed under this and the name of the model.
FULL = "full/"
UNSHOWN = "no model"


def main(command: str, cases: pathlib.Path, directory: pathlib.Path) -> int:
    broken = [directory / f"{name}.onnx" for name in broken_models.write(cases, directory)]
    backend = sorted(cases.glob("*/*/model.onnx"))
    names = {path: "/".join(path.parts[-3:-1]) for path in backend} | {
        path: path.relative_to(directory).with_suffix("").as_posix() for path in broken
    }
    paths = list(names)
    with quiet():
        theirs = {path: refused_by_reference(path) for path in paths}
        theirs_in_full = {path: theirs[path] or refused_in_full(path) for path in paths}
    like_in_full = codes_found(command, paths, "--like-onnx", "--full")
    like = codes_found(command, paths, "--like-onnx")
    usual = codes_found(command, paths)
    strict = codes_found(command, paths, "--strict", "--full")

    found = {}
    for path in paths:
        alike, ours = like[path].errors > 0, usual[path].errors > 0
        if alike and not theirs[path]:
            found[names[path]] = STRICTER
        elif theirs[path] and not ours:
            found[names[path]] = SILENT
        elif theirs[path] and not alike:
            found[names[path]] = LAXER
        ours_in_full = like_in_full[path].errors > 0
        if ours_in_full != theirs_in_full[path]:
            found[FULL + names[path]] = STRICTER if ours_in_full else LAXER
    disagreeing = len(found)
    verdicts = Verdicts(theirs, theirs_in_full, like, like_in_full, usual, strict)
    found |= {CODE + code: UNSHOWN for code in unshown_codes(command, verdicts)}
    known = set(names.values()) | {FULL + name for name in names.values()}
    problems = list(differences(found, read_expectations(EXPECTATIONS), known))
    for problem in problems[:SHOWN]:
        print(problem)
    if len(problems) > SHOWN:
        print(f"and {len(problems) - SHOWN} more")
    kinds = Counter(found.values())
    refused, in_full = sum(theirs.values()), sum(theirs_in_full.values())
    print(
        f"the reference refuses {refused} models, {in_full - refused} more with a full check, and accepts {len(paths) - in_full}; "
        + ", ".join(f"{kind}: {kinds[kind]}" for kind in (STRICTER, LAXER, SILENT))
    )
    print(
        f"checks: {len(paths)} models, {len(paths) - disagreeing} agree, {disagreeing} listed"
        + (f", {len(problems)} problems" if problems else "")
    )
    return 1 if problems else 0


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The reference writes some warnings to standard output, past Python."""
    sys.stdout.flush()
    saved, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)


def refused_by_reference(path: pathlib.Path) -> bool:
    """The verdict of the reference. Data files are looked for beside a model that is given by its path; all others are given
    as bytes as well, and both ways must agree."""
    all_domains = path.parent.name == ALL_DOMAINS
    verdicts = [refuses(str(path), all_domains)]
    if path.parent.name != "external":
        verdicts.append(refuses(path.read_bytes(), all_domains))
    if len(set(verdicts)) > 1:
        raise ValueError(f"{path}: the reference is of two minds")
    return verdicts[0]


def refused_in_full(path: pathlib.Path) -> bool:
    """The verdict of the reference's full check on a model that it accepts otherwise."""
    return refuses(str(path), path.parent.name == ALL_DOMAINS, full_check=True)


def refuses(model: str | bytes, all_domains: bool, full_check: bool = False) -> bool:
    try:
        onnx.checker.check_model(model, full_check=full_check, check_custom_domain=all_domains)
    except Exception:  # Errors of inference and of reading come from here, too.
        return True
    return False


class Found:
    """What our checker says of a model: its errors, and all codes. A model that cannot be read has an error without code."""

    def __init__(self, answer: dict) -> None:
        readable = answer["verdict"] != "unreadable"
        self.errors: int = answer["errors"] if readable else 1
        self.codes: set[str] = {finding["code"] for finding in answer["findings"]} if readable else set()


def codes_found(command: str, paths: Sequence[pathlib.Path], *flags: str) -> dict[pathlib.Path, Found]:
    found = {}
    usual = [path for path in paths if path.parent.name != ALL_DOMAINS]
    batches = [(usual[start : start + BATCH], []) for start in range(0, len(usual), BATCH)]
    batches.append(([path for path in paths if path.parent.name == ALL_DOMAINS], ["--custom-domains"]))
    for batch, more in batches:
        call = [command, "check", *flags, *more, "--max-findings", "1", "--json", *map(str, batch)]
        answer = subprocess.run(call, capture_output=True, check=False)
        if not answer.stdout:
            raise ValueError(f"the command said nothing but {answer.stderr.decode()}")
        files = json.loads(answer.stdout)["files"]
        found |= {path: Found(file) for path, file in zip(batch, files, strict=True)}
    return found


def read_expectations(path: pathlib.Path) -> dict[str, str]:
    """Models by name, and what is the matter with them."""
    lines = path.read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {name: kind for name, kind in fields}


def differences(found: dict[str, str], expected: dict[str, str], names: set[str]) -> Iterator[str]:
    for name, kind in sorted(found.items()):
        if expected.get(name) != kind:
            yield f"{name}\t{kind}"
    for name, kind in expected.items():
        if name not in names and not name.startswith(CODE):
            yield f"{name}: listed, but there is no such model"
        elif name not in found:
            yield f"{name}: listed as '{kind}', but that is not so"


class Verdicts(NamedTuple):
    """What all checks say, by model."""

    theirs: dict[pathlib.Path, bool]
    theirs_in_full: dict[pathlib.Path, bool]
    like: dict[pathlib.Path, Found]
    like_in_full: dict[pathlib.Path, Found]
    usual: dict[pathlib.Path, Found]
    strict: dict[pathlib.Path, Found]


def unshown_codes(command: str, said: Verdicts) -> Iterator[str]:
    """Codes that no model shows to be what they say."""
    answer = subprocess.run([command, "explain", "--json"], stdout=subprocess.PIPE, check=True)
    codes = {
        code["code"]: "shared" if code["refused_by_onnx"] else "full" if code["refused_by_onnx_full_check"] else "own"
        for code in json.loads(answer.stdout)["codes"]
    }
    like, in_full = said.like, said.like_in_full
    alone = {code for path in like if said.theirs[path] and len(like[path].codes) == 1 for code in like[path].codes}
    only_in_full = [path for path in like if said.theirs_in_full[path] and not said.theirs[path]]
    alone_in_full = {code for path in only_in_full if len(in_full[path].codes) == 1 for code in in_full[path].codes}
    accepted = {code for path in like if not said.theirs[path] for code in said.usual[path].codes | said.strict[path].codes}
    kinds = {
        "shared": ("shared with the reference", alone),
        "full": ("shared with its full check", alone_in_full),
        "own": ("ours alone", accepted),
    }
    for kind, (words, shown) in kinds.items():
        of_kind = {code for code in codes if codes[code] == kind}
        print(f"codes: {len(of_kind & shown)} of {len(of_kind)} that are {words} are shown to be so")
        yield from sorted(of_kind - shown)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
