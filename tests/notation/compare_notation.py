"""Compare our parser of the notation with the reference's, `onnx.parser`.

    python compare_notation.py CONVERTER DIRECTORY [--filter TEXT] [--all]

CONVERTER is the program `notation` of the tests; DIRECTORY keeps the reference's source archive. The texts are those of
`cases.py` and what `archive.py` finds in the archive. Both parsers must make the same message of a text, or both refuse it,
but for the cases in `expectations.txt`, which must still deviate in the way that is said there.

Without CONVERTER (`-`), only what the reference makes of the texts is counted.
"""

import argparse
import collections
import difflib
import pathlib
import sys

import onnx
from archive import archive_cases, fetch
from ask import Answer, ask
from cases import KINDS, all_cases
from google.protobuf import text_format
from google.protobuf.message import DecodeError

HERE = pathlib.Path(__file__).parent
MESSAGES = {"model": onnx.ModelProto, "graph": onnx.GraphProto, "function": onnx.FunctionProto, "node": onnx.NodeProto}
# How we may deviate: we refuse what the reference takes, take what it refuses, or make another message of it.
DEVIATIONS = ("refuse", "accept", "differ")
SHOWN = 20
LONGEST = 1200


def main(converter: str, directory: pathlib.Path, wanted: str, show_all: bool) -> int:
    expectations = read_expectations(HERE / "expectations.txt")
    directory.mkdir(parents=True, exist_ok=True)

    def reference(questions):
        return ask([sys.executable, str(HERE / "reference.py")], questions)

    texts = {**all_cases(), **archive_cases(fetch(directory), reference)}
    # What is printed of models is another comparison, that of `compare_models.py`.
    unknown = [name for name in expectations if name not in texts and not name.startswith("print/")]
    texts = {name: text for name, text in texts.items() if wanted in name}
    questions = [(kind_of(name), text) for name, text in texts.items()]
    theirs = reference(questions)
    print(f"{count_kinds(texts)}; the reference {count_reference(theirs)}")
    if converter == "-":
        return 0
    ours = ask([converter], questions)

    equal = refused = 0
    listed = []
    differences = [f"{name}: expectations.txt names it, but there is no such case" for name in unknown]
    for name, our, their in zip(texts, ours, theirs):
        deviation, details = compare(kind_of(name), our, their)
        expected, reason = expectations.get(name, (None, ""))
        if deviation != expected:
            head = f"{name}\t{deviation or 'agrees'}"
            head += f"\n  expected was: {expected}, {reason}" if expected else ""
            differences.append("\n".join([head, indented(shortened(texts[name])), details]))
        elif expected:
            listed.append(name)
        elif their.message is None:
            refused += 1
        else:
            equal += 1
    for difference in differences if show_all else differences[:SHOWN]:
        print(f"\n{difference}")
    if len(differences) > SHOWN and not show_all:
        print(f"\nand {len(differences) - SHOWN} more differences, which --all shows")
    print(
        f"{len(texts)} texts: {equal} taken by both and equal, {refused} refused by both,"
        f" {len(listed)} deviations on purpose, {len(differences)} differences"
    )
    return 1 if differences else 0


def kind_of(name: str) -> str:
    return name.split("/")[0]


def compare(kind: str, our: Answer, their: Answer) -> tuple[str | None, str]:
    """How we deviate if we do, and what both say."""
    if our.crashed:
        return "crash", f"  we {our.words}"
    words = {"we": our, "the reference": their}
    details = "\n".join(f"  {who}: {indented(answer.words).lstrip()}" for who, answer in words.items() if answer.message is None)
    if our.message is None or their.message is None:
        deviation = None if our.message == their.message else "refuse" if our.message is None else "accept"
        return deviation, details
    mine, reference = canonical(kind, our.message), canonical(kind, their.message)
    if mine == reference:
        return None, "  the messages are equal"
    lines = difflib.unified_diff(readable(kind, reference), readable(kind, mine), "reference", "ours", lineterm="", n=3)
    return "differ", indented(shortened("\n".join(lines)) or f"reference {reference.hex()}\nours      {mine.hex()}")


def canonical(kind: str, content: bytes) -> bytes:
    """The fields in one order, whatever order they were written in. Bytes, since no NaN is equal to itself."""
    try:
        return MESSAGES[kind].FromString(content).SerializeToString(deterministic=True)
    except DecodeError:
        return content


def readable(kind: str, content: bytes) -> list[str]:
    try:
        return text_format.MessageToString(MESSAGES[kind].FromString(content), print_unknown_fields=True).splitlines()
    except DecodeError:
        return ["no message:", content.hex()]


def read_expectations(path: pathlib.Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        name, deviation, reason = (line.split("\t") + ["", ""])[:3]
        if deviation not in DEVIATIONS or not reason or name in found:
            sys.exit(f"{path.name}:{number}: no `name<TAB>{'|'.join(DEVIATIONS)}<TAB>reason`, or twice: {line}")
        found[name] = deviation, reason
    return found


def count_kinds(texts: dict[str, str]) -> str:
    counts = collections.Counter(map(kind_of, texts))
    archived = sum("/archive/" in name for name in texts)
    return f"{len(texts)} texts ({', '.join(f'{counts[kind]} {kind}' for kind in KINDS)}; {archived} from the archive)"


def count_reference(answers: list[Answer]) -> str:
    taken = sum(answer.message is not None for answer in answers)
    crashed = sum(answer.crashed for answer in answers)
    raised = sum(answer.words.startswith("raised ") for answer in answers)
    refused = len(answers) - taken - crashed - raised
    return f"takes {taken}, refuses {refused}, raises another exception on {raised}, crashes on {crashed}"


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def shortened(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST // 2]}\n… {len(text) - LONGEST} characters …\n{text[-LONGEST // 2 :]}"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("converter")
    arguments.add_argument("directory", type=pathlib.Path)
    arguments.add_argument("--filter", default="", help="only cases whose names contain this")
    arguments.add_argument("--all", action="store_true", help="show every difference")
    given = arguments.parse_args()
    sys.exit(main(given.converter, given.directory, given.filter, given.all))
