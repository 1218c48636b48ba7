"""Runs the tests of the onnx package on a core, and compares what comes of each with what is expected.

    python run_suite.py --tests SOURCES --work DIRECTORY (--wheel FILE | --original) [--bless] [TEST_FILE...]

SOURCES is an unpacked source distribution of the onnx package that is installed beside this Python; only its
tests are used. They run on a private copy of that package, whose extension is replaced by the module in the
wheel, or kept with --original.

Two lists say what is expected of tests that do not pass: baseline.txt, which is what the original extension does,
and expectations.txt, where ours does otherwise. A line holds, separated by tabs: the tests (one name, or a
pattern with `*`), the outcome, how many tests that is, and the reason. A test's own line counts before patterns,
and earlier patterns before later ones. Every test that no line names is expected to pass. A line with the outcome
`tests` says how many tests a file has, so that none can vanish. --bless rewrites the list to what happened;
reasons stay.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
# Files that run at the same time: each takes one core.
WORKERS = 2
# Seconds that a file of tests may take.
LIMIT = 1800
# These take longest, so they begin first.
LONGEST = ("backend_reference_test.py", "backend_test.py", "shape_inference_test.py")
# The outcome in lines that say how many tests a file has.
TOTAL = "tests"
STAND_IN = '''"""The core of this package is Sardonyx."""

from sardonyx._onnx_core import become

become(__name__)
'''


@dataclass(frozen=True)
class Outcome:
    """What came of a test."""

    kind: str  # passed, failed or skipped
    message: str = ""


@dataclass
class Line:
    """A line of a list: these tests have that outcome."""

    tests: str
    kind: str
    count: int
    reason: str

    def matcher(self) -> re.Pattern[str]:
        return re.compile(".*".join(map(re.escape, self.tests.split("*"))), re.DOTALL)


def main() -> int:
    arguments = parse()
    tests = arguments.tests.resolve() / "tests" / "python"
    site = package_copy(arguments.work, arguments.wheel)
    names = arguments.files or sorted(str(path.relative_to(tests)) for path in tests.rglob("*_test.py"))
    names.sort(key=lambda name: name not in LONGEST)
    started = time.monotonic()
    results: dict[str, dict[str, Outcome]] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        # Traces are for looking at few files: pytest reads a file of tests anew for each of them.
        trace = "short" if arguments.files else "line"
        run = partial(run_file, trace, tests, site, arguments.work)
        runs = {name: pool.submit(run, name) for name in names}
        for name, run in runs.items():
            results[name], seconds = run.result()
            print(f"{name:45} {counts(results[name].values())}  {seconds:5.0f} s", flush=True)
    found = {test: outcome for file in results.values() for test, outcome in file.items()}
    print(f"{'all':45} {counts(found.values())}  {time.monotonic() - started:5.0f} s")

    ours = HERE / "expectations.txt"
    original = HERE / "baseline.txt"
    base = read_list(original)
    own = [] if arguments.original else read_list(ours)
    surprises = compare(found, results, own, base)
    if arguments.bless:
        whole = not arguments.files
        if arguments.original:
            write_list(original, HEAD_BASELINE, bless(found, results, base, [], whole))
        else:
            write_list(ours, HEAD, bless(found, results, own, base, whole))
        print(f"{len(surprises)} changes written down")
        return 0
    for surprise in surprises[:200]:
        print(surprise)
    if surprises:
        print(f"{len(surprises)} surprises; if they are right: --bless")
    return 1 if surprises else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tests", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    core = parser.add_mutually_exclusive_group(required=True)
    core.add_argument("--wheel", type=Path)
    core.add_argument("--original", action="store_true")
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("files", nargs="*")
    return parser.parse_args()


def package_copy(work: Path, wheel: Path | None) -> Path:
    """A copy of the installed package, with the wheel's module as its core; the original one without a wheel."""
    site = work.resolve() / "site"
    shutil.rmtree(site, ignore_errors=True)
    installed = Path(find_spec("onnx").origin).parent
    # The extension lies beside a directory of type stubs with the same name.
    core = shutil.ignore_patterns("__pycache__", *(["onnx_cpp2py_export*"] if wheel else []))
    shutil.copytree(installed, site / "onnx", ignore=core)
    for facts in installed.parent.glob("onnx-*.dist-info"):
        shutil.copytree(facts, site / facts.name)
    if wheel:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--no-index", "--target", site, wheel], check=True)
        stand_in = site / "onnx" / "onnx_cpp2py_export"
        stand_in.mkdir()
        (stand_in / "__init__.py").write_text(STAND_IN)
    return site


def run_file(
    trace: str, tests: Path, site: Path, work: Path, name: str
) -> tuple[dict[str, Outcome], float]:
    """Runs a file of tests. Gives the outcomes by test, and how many seconds it took."""
    key = name.replace("/", "__").removesuffix(".py")
    report = work.resolve() / f"{key}.xml"
    report.unlink(missing_ok=True)
    config = work.resolve() / "pytest.ini"
    config.write_text("[pytest]\n")
    environment = dict(os.environ, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-c", config, "--rootdir", tests.parent.parent]
    command += ["-p", "no:cacheprovider", "-q", f"--tb={trace}", "--color=no", "--junitxml", report, name]
    started = time.monotonic()
    with open(work / f"{key}.log", "wb") as log:
        try:
            subprocess.run(command, cwd=tests, env=environment, stdout=log, stderr=log, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"{name} took more than {LIMIT} s and was stopped")
    seconds = time.monotonic() - started
    if not report.exists():
        print(f"{name} did not run to its end; see {work / f'{key}.log'}")
        return {}, seconds
    return read_report(name, report), seconds


def read_report(name: str, report: Path) -> dict[str, Outcome]:
    module = name.removesuffix(".py").replace("/", ".")
    outcomes = {}
    for case in ET.parse(report).iter("testcase"):
        # The class, after the path of the module.
        classes = case.get("classname", "").rpartition(module)[2].strip(".")
        test = "::".join(filter(None, [name, classes, case.get("name", "")]))
        test = test.encode("unicode_escape").decode()
        outcomes[test] = outcome_of(case)
    return outcomes


def outcome_of(case: ET.Element) -> Outcome:
    for tag, kind in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
        found = case.find(tag)
        if found is not None:
            return Outcome(kind, found.get("message", ""))
    return Outcome("passed")


def counts(outcomes) -> str:
    by_kind = Counter(outcome.kind for outcome in outcomes)
    return "  ".join(f"{by_kind[kind]:5} {kind}" for kind in ("passed", "failed", "skipped"))


def read_list(path: Path) -> list[Line]:
    if not path.exists():
        return []
    rows = (row.split("\t") for row in path.read_text().splitlines() if row and not row.startswith("#"))
    return [Line(tests, kind, int(count), reason) for tests, kind, count, reason in rows]


def assign(tests, lines: list[Line]) -> dict[str, Line]:
    """The line that speaks of each test, for those that one speaks of."""
    lines = [line for line in lines if line.kind != TOTAL]
    own = {line.tests: line for line in lines if "*" not in line.tests}
    patterns = defaultdict(list)
    for line in lines:
        if "*" in line.tests:
            patterns[line.tests.split("::")[0]].append((line.matcher(), line))
    assigned = {}
    for test in tests:
        if test in own:
            assigned[test] = own[test]
            continue
        for matcher, line in patterns[test.split("::")[0]]:
            if matcher.fullmatch(test):
                assigned[test] = line
                break
    return assigned


def expected(tests, own: list[Line], base: list[Line]) -> dict[str, str]:
    """The expected outcome of each test."""
    wanted = {test: line.kind for test, line in assign(tests, base).items()}
    wanted |= {test: line.kind for test, line in assign(tests, own).items()}
    return {test: wanted.get(test, "passed") for test in tests}


def compare(found, results, own: list[Line], base: list[Line]) -> list[str]:
    """Every test whose outcome is not the expected one, and every line whose number is not right."""
    surprises = []
    for test, kind in expected(found, own, base).items():
        outcome = found[test]
        if outcome.kind != kind:
            surprises.append(f"{test}: {outcome.kind}, expected {kind}. {first_line(outcome.message)}")
    totals = totals_of(base) | totals_of(own)
    for name, file in results.items():
        if len(file) != totals.get(name):
            surprises.append(f"{name}: {len(file)} tests, expected {totals.get(name)}")
    # The baseline counts what there is with the original; which may be more than there is with ours.
    lines = own or base
    matched = Counter(line.tests for line in assign(found, lines).values())
    for line in lines:
        ran = line.tests.split("::")[0] in results and line.kind != TOTAL
        if ran and matched[line.tests] != line.count:
            surprises.append(f"{line.tests}: {matched[line.tests]} tests, expected {line.count}")
    return surprises


def totals_of(lines: list[Line]) -> dict[str, int]:
    return {line.tests: line.count for line in lines if line.kind == TOTAL}


def bless(found, results, old: list[Line], base: list[Line], whole: bool) -> list[Line]:
    """What happened, as lines. Of files that did not run, the old ones stay."""
    reasons = {line.tests: line.reason for line in old}
    lines = [] if whole else [line for line in old if line.tests.split("::")[0] not in results]
    wanted = expected(found, [], base)
    totals = totals_of(base)
    for name, tests in results.items():
        if len(tests) != totals.get(name):
            lines.append(Line(name, TOTAL, len(tests), reasons.get(name, "")))
        # What the original does as well needs no line here.
        left = {test for test, outcome in tests.items() if outcome.kind != wanted[test]}
        alone = set()
        for pattern in candidates(tests):
            matcher = Line(pattern, "", 0, "").matcher()
            matched = [test for test in tests if matcher.fullmatch(test) and test not in alone]
            kinds = Counter(tests[test].kind for test in matched if test in left)
            kind, count = max(kinds.items(), key=lambda item: item[1], default=("", 0))
            hits = [test for test in matched if test in left and tests[test].kind == kind]
            # A few may be otherwise, and get lines of their own.
            others = set(matched).difference(hits)
            if count > 1 and count > 10 * len(others):
                lines.append(line_for(pattern, hits, tests, reasons))
                left.difference_update(hits, others)
                alone |= others
        left |= alone
        lines += [line_for(test, [test], tests, reasons) for test in sorted(left)]
    return sorted(lines, key=lambda line: line.tests)


def candidates(tests) -> list[str]:
    """Patterns that may say something about many tests of a file, the widest first."""
    patterns = Counter()
    for test in tests:
        name = test.split("::")[0]
        group = test.rpartition("::")[0]
        function = test.split("[")[0]
        device = re.search(r"_(cpu|cuda)$", test)
        patterns[(0, f"{name}::*")] += 1
        if device:
            patterns[(1, f"{name}::*{device[0]}")] += 1
        patterns[(2, f"{group}::*")] += 1
        if "[" in test:
            patterns[(3, f"{function}[*")] += 1
    return [pattern for (_, pattern), count in sorted(patterns.items()) if count > 1]


def line_for(name: str, matched: list[str], tests, reasons: dict[str, str]) -> Line:
    outcome = tests[matched[0]]
    reason = reasons.get(name) or first_line(outcome.message)
    return Line(name, outcome.kind, len(matched), reason)


def first_line(message: str) -> str:
    """The start of a message, without what changes from run to run."""
    line = message.strip().split("\n")[0]
    line = re.sub(r"0x[0-9a-f]+", "0x..", line)
    line = re.sub(r"/\S*/", "", line).replace("\t", " ")
    return line if len(line) <= 120 else line[:117] + "..."


HEAD = """\
# The tests of the onnx package that do not do on our core what they do on its own, with the reason.
# A test whose outcome changes, in either direction, fails the run.
# Rewritten by: cargo xtask onnx-suite --bless
"""
HEAD_BASELINE = """\
# The tests of the onnx package that do not pass on its own core either.
# Rewritten by: cargo xtask onnx-suite --original --bless
"""


def write_list(path: Path, head: str, lines: list[Line]) -> None:
    rows = (f"{line.tests}\t{line.kind}\t{line.count}\t{line.reason}\n" for line in lines)
    path.write_text(head + "".join(rows))


if __name__ == "__main__":
    sys.exit(main())
