"""Compare what our checker refuses with what `onnx.checker.check_model` refuses.

    python compare_checks.py COMMAND CASES FOLDER

COMMAND is the program `sardonyx`, CASES the folder that `dump_cases.py` writes. FOLDER gets the models of `broken_models.py`.
Each model is checked by the reference, by ours as the reference would (`--like-onnx`), by ours as it is, and with `--strict`.
Where the verdicts differ, `check_expectations.txt` says so and why; what is not there, or there and not so, fails the comparison.

So do codes that no model shows to be what they say: one that is shared with the reference must be the only finding of a model
that the reference refuses; any other must be found in a model that the reference accepts.
"""

import contextlib
import json
import os
import pathlib
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence

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
UNSHOWN = "no model"


def main(command: str, cases: pathlib.Path, folder: pathlib.Path) -> int:
    broken = [folder / f"{name}.onnx" for name in broken_models.write(cases, folder)]
    backend = sorted(cases.glob("*/*/model.onnx"))
    names = {path: "/".join(path.parts[-3:-1]) for path in backend} | {
        path: path.relative_to(folder).with_suffix("").as_posix() for path in broken
    }
    paths = list(names)
    with quiet():
        theirs = {path: refused_by_reference(path) for path in paths}
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
    disagreeing = len(found)
    found |= {CODE + code: UNSHOWN for code in unshown_codes(command, theirs, like, usual, strict)}
    problems = list(differences(found, read_expectations(EXPECTATIONS), set(names.values())))
    for problem in problems[:SHOWN]:
        print(problem)
    if len(problems) > SHOWN:
        print(f"and {len(problems) - SHOWN} more")
    kinds = Counter(found.values())
    refused = sum(theirs.values())
    print(
        f"the reference refuses {refused} models and accepts {len(paths) - refused}; "
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


def refuses(model: str | bytes, all_domains: bool) -> bool:
    try:
        onnx.checker.check_model(model, check_custom_domain=all_domains)
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


def unshown_codes(command: str, theirs, like, usual, strict) -> Iterator[str]:
    """Codes that no model shows to be what they say."""
    answer = subprocess.run([command, "explain", "--json"], stdout=subprocess.PIPE, check=True)
    codes = {code["code"]: code["refused_by_onnx"] for code in json.loads(answer.stdout)["codes"]}
    alone = {code for path in like if theirs[path] and len(like[path].codes) == 1 for code in like[path].codes}
    accepted = {code for path in like if not theirs[path] for code in usual[path].codes | strict[path].codes}
    for is_shared, shown in ((True, alone), (False, accepted)):
        of_kind = {code for code, shared in codes.items() if shared == is_shared}
        kind = "shared with the reference" if is_shared else "ours alone"
        print(f"codes: {len(of_kind & shown)} of {len(of_kind)} that are {kind} are shown to be so")
        yield from sorted(of_kind - shown)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
