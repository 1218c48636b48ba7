"""Compare what we print of models with what the reference's parser, `onnx.parser`, reads from it.

    python compare_models.py PRINTER DIRECTORY... [--filter TEXT] [--all]

PRINTER is the program `notation` of the tests. Every model in the directories is printed in the portable form. Read by the
reference, the text must give the same model but for what was reported as left out; of that, neither more nor less than was
reported may be missing. Exceptions are in `expectations.txt`, under `print/` and the path.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import onnx
from ask import Answer, ask, converse
from compare_notation import HERE, LONGEST, SHOWN, indented, read_expectations, shortened
from google.protobuf.message import DecodeError, Message
from left_out import NOT_UTF8, take_out

PRINTED = "print/"
# Each is one process of ours and one of the reference's.
BATCH = 128


def main(printer: str, directories: Sequence[pathlib.Path], wanted: str, show_all: bool) -> int:
    expectations = {
        name: expected for name, expected in read_expectations(HERE / "expectations.txt").items() if name.startswith(PRINTED)
    }
    paths = {PRINTED + shown(path): path for directory in directories for path in models(directory)}
    # A directory that is not there is skipped, and so are its models.
    skipped = tuple(PRINTED + shown(directory) for directory in directories if not directory.exists())
    differences = [
        f"{name}: expectations.txt names it, but there is no such model"
        for name in expectations
        if name not in paths and not name.startswith(skipped or "/")
    ]
    names = [name for name in paths if wanted in name]
    batches = [names[start : start + BATCH] for start in range(0, len(names), BATCH)]
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        results = itertools.chain.from_iterable(
            threads.map(lambda batch: compare_all(printer, [paths[name] for name in batch]), batches)
        )
        results = list(results)

    equal = listed = complete = 0
    kinds: collections.Counter = collections.Counter()
    having: collections.Counter = collections.Counter()
    for name, (deviation, details, left_out) in zip(names, results):
        kinds.update(left_out)
        having.update(left_out.keys())
        complete += left_out == {} and deviation != "crash"
        expected, reason = expectations.get(name, (None, ""))
        if deviation != expected:
            head = f"{name}\t{deviation or 'agrees'}"
            head += f"\n  expected was: {expected}, {reason}" if expected else ""
            differences.append(f"{head}\n{indented(shortened(details))}" if details else head)
        elif expected:
            listed += 1
        else:
            equal += 1
    for difference in differences if show_all else differences[:SHOWN]:
        print(f"\n{difference}")
    if len(differences) > SHOWN and not show_all:
        print(f"\nand {len(differences) - SHOWN} more differences, which --all shows")
    print(f"left out of {len(names) - complete} models, of {complete} nothing:")
    for what, count in kinds.most_common():
        print(f"  {what}: {count} in {having[what]} models")
    print(f"{len(names)} models: {equal} equal, {listed} deviations on purpose, {len(differences)} differences")
    return 1 if differences else 0


def models(directory: pathlib.Path) -> list[pathlib.Path]:
    if not directory.exists():
        print(f"{shown(directory)} is not there: skipped")
    return sorted(directory.rglob("*.onnx"))


def shown(path: pathlib.Path) -> str:
    return os.path.relpath(path, HERE.parents[1])


Result = tuple[str | None, str, dict[str, int]]


def compare_all(printer: str, paths: Sequence[pathlib.Path]) -> list[Result]:
    """How each model deviates if it does, what that is, and what was reported as left out."""
    printed = converse([printer, "--print-models"], list(map(str, paths)))
    texts = []
    for answer in printed:
        content = bytes.fromhex(answer.get("text_hex", ""))
        texts.append(content.decode(errors="replace"))
        answer["is_utf8"] = content == texts[-1].encode()
    readings = ask([sys.executable, str(HERE / "reference.py")], [("model", text) for text in texts])
    return [compare(path, *found) for path, *found in zip(paths, printed, texts, readings)]


def compare(path: pathlib.Path, printed: dict, text: str, reading: Answer) -> Result:
    if "text_hex" not in printed:
        return "crash" if "crashed" in printed else "refuse", f"we: {printed.get('crashed') or printed['error']}", {}
    left_out = {kind["what"]: kind["count"] for kind in printed["left_out"]}
    if not printed["is_utf8"] and NOT_UTF8 not in left_out:
        return "differ", "the text is not UTF-8, which was not reported", left_out
    if reading.message is None:
        return "accept", f"the reference: {reading.words}\n{text}", left_out
    try:
        expected = onnx.ModelProto.FromString(path.read_bytes())
        found = onnx.ModelProto.FromString(reading.message)
    except DecodeError as error:
        return "differ", f"protobuf: {error}", left_out
    had = take_out(expected, left_out)
    complaints = [
        f"{what}: reported {left_out.get(what, 0)}, but the model has {had[what]}"
        for what in sorted(left_out | had)
        if left_out.get(what, 0) != had[what]
    ]
    if content(expected) != content(found):
        complaints += itertools.islice(unlike(expected, found, "model"), 5)
    if not complaints:
        return None, "", left_out
    return "differ", "\n".join([*complaints, "", *text.splitlines()]), left_out


def content(message: Message) -> bytes:
    """Bytes, since no NaN is equal to itself."""
    return message.SerializeToString(deterministic=True)


def unlike(expected: Message, found: Message, place: str) -> Iterator[str]:
    """Where two messages differ, in words."""
    known = False
    for field in expected.DESCRIPTOR.fields:
        here = f"{place}.{field.name}"
        ours, theirs = getattr(expected, field.name), getattr(found, field.name)
        if field.is_repeated:
            if len(ours) != len(theirs):
                yield f"{here}: {len(ours)} printed, {len(theirs)} read"
                known = True
            pairs = [(f"{here}[{index}]", *pair) for index, pair in enumerate(zip(ours, theirs))]
        else:
            there = expected.HasField(field.name), found.HasField(field.name)
            if there[0] != there[1]:
                value = ours if there[0] else theirs
                yield f"{here}: {'printed' if there[0] else 'read'} only: {json.dumps(str(value))[:LONGEST]}"
                known = True
            pairs = [(here, ours, theirs)] if all(there) else []
        for where, our, their in pairs:
            if not isinstance(our, Message):
                # NaN is written alike, and a zero with its sign.
                if repr(our) != repr(their):
                    yield f"{where}: {our!r} became {their!r}"
                    known = True
            elif content(our) != content(their):
                yield from unlike(our, their, where)
                known = True
    if not known and content(expected) != content(found):
        yield f"{place}: differs in unknown fields or the bits of a NaN"


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("printer")
    arguments.add_argument("directories", type=pathlib.Path, nargs="+")
    arguments.add_argument("--filter", default="", help="only models whose paths contain this")
    arguments.add_argument("--all", action="store_true", help="show every difference")
    given = arguments.parse_args()
    sys.exit(main(given.printer, given.directories, given.filter, given.all))
