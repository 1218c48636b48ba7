"""Asks a parser in another process for the messages of texts, and survives what it does not."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Answer:
    """What a parser made of a text: a message, or words that say why not."""

    message: bytes | None
    words: str = ""
    crashed: bool = False


def ask(command: Sequence[str], questions: Sequence[tuple[str, str]]) -> list[Answer]:
    """The answers to (kind, text), in order."""
    lines = [json.dumps({"kind": kind, "text_hex": text.encode().hex()}) for kind, text in questions]
    return [read(answer) for answer in converse(command, lines)]


def converse(command: Sequence[str], questions: Sequence[str]) -> list[dict]:
    """The answers to lines, in order. After a crash the command is started again for the lines after."""
    answers: list[dict] = []
    while len(answers) < len(questions):
        left = questions[len(answers) :]
        done = subprocess.run(command, input="\n".join(left), stdout=subprocess.PIPE, text=True, timeout=1200)
        # Not `splitlines`: within JSON there are other characters that Python takes for the end of a line.
        answers += map(json.loads, done.stdout.split("\n")[:-1])
        if len(answers) > len(questions) or (len(answers) < len(questions) and done.returncode == 0):
            raise RuntimeError(f"{command[0]} gave {len(answers)} answers to {len(questions)} questions")
        if len(answers) < len(questions):
            answers.append({"crashed": f"ended with {done.returncode}"})
    return answers


def read(answer: dict) -> Answer:
    if "crashed" in answer:
        return Answer(None, answer["crashed"], crashed=True)
    return Answer(bytes.fromhex(answer["ok"])) if "ok" in answer else Answer(None, answer["error"])
