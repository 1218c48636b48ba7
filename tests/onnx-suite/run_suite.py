"""Runs tests of other packages on ours, and compares what comes of each with what is expected.

    python run_suite.py --suite SUITE --tests SOURCES --work DIRECTORY (--wheel FILE | --original) [--bless] [TEST_FILE...]

SOURCES is an unpacked source distribution of the package that is installed beside this Python; only its tests are
used. There are three suites:

- `core`: the tests of the onnx package, on a private copy of that package whose extension is replaced by the module
  in the wheel;
- `evaluator`: its tests of the reference evaluator, on sessions of the wheel (session_evaluator.py);
- `skl2onnx`: the tests of that converter of scikit-learn, with the wheel in the place of onnxruntime.

With --original each runs on what the tests were written for.

Two lists say what is expected of tests that do not pass: one of what the original does, and one where ours does
otherwise. A line holds, separated by tabs: the tests (one name, or a pattern with `*`), the outcome, how many tests
that is, and the reason. A test's own line counts before patterns, and earlier patterns before later ones. Every test that no line names is expected to pass. A line with the outcome
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
# Seconds that the files of tests in one process may take.
LIMIT = 1800
# These take longest, so they begin first.
LONGEST = ("backend_reference_test.py", "backend_test.py", "shape_inference_test.py")
# The first need 7 GB and minutes, in scikit-learn more than in the session; the others fetch data from the network.
LEFT_OUT = ("test_x_issue_789", "test_model_tfidf_transform_bug", "tfidf_vectorizer_converter_dataset")
# The outcome in lines that say how many tests a file has.
TOTAL = "tests"
STAND_IN = '''"""The core of this package is Sardonyx."""

from sardonyx._shims.onnx_core import become

become(__name__)
'''


@dataclass(frozen=True)
class Suite:
    """Tests of another package, and what is expected of them."""

    what: str
    package: str
    # Where the tests are below the sources, and which of them.
    tests: str
    files: str
    # The plugins of pytest that put ours in the place of what the tests are for, and those for either.
    plugins: tuple[str, ...]
    always: tuple[str, ...]
    # The lists of what is expected of ours and of the original.
    ours: str
    original: str
    # What the tests run on, in the heads of the lists.
    on: tuple[str, str]
    command: str
    # Whether the extension of the onnx package is replaced.
    is_core: bool = False
    # Whether files share a process, as starting it takes longer than most of them.
    shares: bool = False
    options: tuple[str, ...] = ()
    # A locale that the original demands of the machine.
    locale: str = ""


SUITES = {
    "core": Suite(
        what="the onnx package",
        package="onnx",
        tests="tests/python",
        files="**/*_test.py",
        plugins=(),
        always=(),
        ours="expectations.txt",
        original="baseline.txt",
        on=("our core", "its own core"),
        command="onnx-suite",
        is_core=True,
    ),
    "evaluator": Suite(
        what="the onnx package's reference evaluator",
        package="onnx",
        tests="tests/python",
        files="reference_evaluator*_test.py",
        plugins=("session_evaluator",),
        always=(),
        ours="evaluator.txt",
        original="evaluator_baseline.txt",
        on=("our sessions", "that evaluator"),
        command="runtime-suite",
    ),
    "skl2onnx": Suite(
        what="skl2onnx",
        package="skl2onnx",
        tests="tests",
        files="test_*.py",
        plugins=("as_onnxruntime",),
        always=("seeded",),
        ours="skl2onnx.txt",
        original="skl2onnx_baseline.txt",
        on=("our sessions", "onnxruntime"),
        command="runtime-suite --skl2onnx",
        shares=True,
        options=("-k", " and ".join(f"not {name}" for name in LEFT_OUT)),
        locale="en_US.UTF-8",
    ),
}


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
    suite = SUITES[arguments.suite]
    tests = arguments.tests.resolve() / suite.tests
    names = arguments.files or sorted(str(path.relative_to(tests)) for path in tests.glob(suite.files))
    names.sort(key=lambda name: name not in LONGEST)
    groups = [names[first::WORKERS] for first in range(WORKERS)] if suite.shares else [[name] for name in names]
    started = time.monotonic()
    results: dict[str, dict[str, Outcome]] = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        run = partial(run_files, command(suite, arguments), tests, arguments.work.resolve())
        for group, (found, seconds) in zip(groups, pool.map(run, filter(None, groups)), strict=False):
            results |= found
            for name in group:
                print(f"{name:45} {counts(found.get(name, {}).values())}", flush=True)
            print(f"{'':45} {seconds:5.0f} s", flush=True)
    found = {test: outcome for file in results.values() for test, outcome in file.items()}
    print(f"{'all':45} {counts(found.values())}  {time.monotonic() - started:5.0f} s")
    return judge(suite, arguments, found, results)


def judge(suite: Suite, arguments: argparse.Namespace, found, results) -> int:
    """Compares with the lists, or rewrites them."""
    ours = HERE / suite.ours
    original = HERE / suite.original
    base = read_list(original)
    own = [] if arguments.original else read_list(ours)
    surprises = compare(found, results, own, base)
    if arguments.bless:
        whole = not arguments.files
        if arguments.original:
            write_list(original, head_of_original(suite), bless(found, results, base, [], whole))
        else:
            write_list(ours, head_of_ours(suite), bless(found, results, own, base, whole))
        print(f"{len(surprises)} changes written down")
        return 0
    for surprise in surprises[:200]:
        print(surprise)
    if surprises:
        print(f"{len(surprises)} surprises; if they are right: --bless")
    return 1 if surprises else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--suite", choices=SUITES, required=True)
    parser.add_argument("--tests", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    core = parser.add_mutually_exclusive_group(required=True)
    core.add_argument("--wheel", type=Path)
    core.add_argument("--original", action="store_true")
    parser.add_argument("--bless", action="store_true")
    parser.add_argument("files", nargs="*")
    return parser.parse_args()


def command(suite: Suite, arguments: argparse.Namespace) -> Command:
    """How pytest is started: the packages beside those that are installed, and the plugins."""
    work = arguments.work.resolve()
    site = work / "site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir(parents=True)
    if suite.is_core:
        copy_package(site, arguments.wheel)
    if arguments.wheel:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--no-index", "--target", site, arguments.wheel], check=True)
    config = work / "pytest.ini"
    config.write_text("[pytest]\n")
    environment = dict(os.environ, PYTHONPATH=f"{site}{os.pathsep}{HERE}", PYTHONDONTWRITEBYTECODE="1")
    environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if suite.locale and not arguments.wheel:
        environment["LOCPATH"] = str(locale(suite.locale, work / "locale"))
    # Traces are for looking at few files: pytest reads a file of tests anew for each of them.
    trace = "short" if arguments.files else "line"
    words = [sys.executable, "-m", "pytest", "-c", str(config), "-p", "no:cacheprovider", "-q"]
    words += [f"--tb={trace}", "--color=no", *suite.options]
    for plugin in (*suite.always, *(suite.plugins if arguments.wheel else ())):
        words += ["-p", plugin]
    return Command(words, environment)


@dataclass(frozen=True)
class Command:
    """How pytest is started, before the files."""

    words: list[str]
    environment: dict[str, str]


def locale(name: str, directory: Path) -> Path:
    """A directory with a locale, which the machine may lack."""
    if not (directory / name).exists():
        directory.mkdir(parents=True, exist_ok=True)
        language, _, encoding = name.partition(".")
        subprocess.run(["localedef", "-i", language, "-f", encoding, directory / name], check=True)
    return directory


def copy_package(site: Path, wheel: Path | None) -> None:
    """Copies the installed onnx package; with a wheel, the core of the copy is the module in the wheel."""
    installed = Path(find_spec("onnx").origin).parent
    # The extension lies beside a directory of type stubs with the same name.
    core = shutil.ignore_patterns("__pycache__", *(["onnx_cpp2py_export*"] if wheel else []))
    shutil.copytree(installed, site / "onnx", ignore=core)
    for facts in installed.parent.glob("onnx-*.dist-info"):
        shutil.copytree(facts, site / facts.name)
    if wheel:
        stand_in = site / "onnx" / "onnx_cpp2py_export"
        stand_in.mkdir()
        (stand_in / "__init__.py").write_text(STAND_IN)


def run_files(
    command: Command, tests: Path, work: Path, names: list[str]
) -> tuple[dict[str, dict[str, Outcome]], float]:
    """Runs files of tests in one process. Gives the outcomes by file and test, and how many seconds it took."""
    key = names[0].replace("/", "__").removesuffix(".py")
    report = work / f"{key}.xml"
    report.unlink(missing_ok=True)
    words = [*command.words, "--rootdir", tests.parent, "--junitxml", report, *names]
    started = time.monotonic()
    with open(work / f"{key}.log", "wb") as log:
        try:
            subprocess.run(words, cwd=tests, env=command.environment, stdout=log, stderr=log, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            print(f"{' '.join(names)}: more than {LIMIT} s, and stopped")
    seconds = time.monotonic() - started
    if not report.exists():
        print(f"{' '.join(names)} did not run to the end; see {work / f'{key}.log'}")
        return {name: {} for name in names}, seconds
    return read_report(names, report), seconds


def read_report(names: list[str], report: Path) -> dict[str, dict[str, Outcome]]:
    modules = {name.removesuffix(".py").replace("/", "."): name for name in names}
    outcomes: dict[str, dict[str, Outcome]] = {name: {} for name in names}
    for case in ET.parse(report).iter("testcase"):
        # The path of the module, then the classes. A module that cannot be imported is a test of that name.
        place = case.get("classname") or case.get("name", "")
        found = re.search(rf"(?:^|\.)({'|'.join(map(re.escape, modules))})(?:\.(.*))?$", place)
        name = modules[found[1]]
        test = "::".join(filter(None, [name, found[2], case.get("name", "")]))
        test = test.encode("unicode_escape").decode()
        outcomes[name][test] = outcome_of(case)
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


def head_of_ours(suite: Suite) -> str:
    ours, original = suite.on
    return (
        f"# The tests of {suite.what} that do not do on {ours} what they do on {original}, with the reason.\n"
        "# A test whose outcome changes, in either direction, fails the run.\n"
        f"# Rewritten by: cargo xtask {suite.command} --bless\n"
    )


def head_of_original(suite: Suite) -> str:
    return (
        f"# The tests of {suite.what} that do not pass on {suite.on[1]} either.\n"
        f"# Rewritten by: cargo xtask {suite.command} --original --bless\n"
    )


def write_list(path: Path, head: str, lines: list[Line]) -> None:
    rows = (f"{line.tests}\t{line.kind}\t{line.count}\t{line.reason}\n" for line in lines)
    path.write_text(head + "".join(rows))


if __name__ == "__main__":
    sys.exit(main())
