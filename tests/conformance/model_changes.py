"""Changes of a model: a field set or left out, an element doubled. For `broken_models.py`.

A place is a path of fields and positions, such as `graph.node.0.input.1`.
"""

import copy
from collections.abc import Callable, Iterator

from google.protobuf.message import Message
from onnx import ModelProto, parser

Change = Callable[[ModelProto], None]

# Elements of a list of numbers that are changed; those after them are like them.
LONGEST = 3


def part(message, place: str):
    for step in place.split(".") if place else ():
        message = message[int(step)] if step.isdigit() else getattr(message, step)
    return message


def holder(model: Message, place: str) -> tuple[object, str]:
    outer, _, last = place.rpartition(".")
    return part(model, outer), last


def put(place: str, value) -> Change:
    def change(model: ModelProto) -> None:
        outer, last = holder(model, place)
        if isinstance(value, Message):
            part(model, place).CopyFrom(value)
        elif last.isdigit():
            outer[int(last)] = value
        else:
            setattr(outer, last, value)

    return change


def cut(*places: str) -> Change:
    def change(model: ModelProto) -> None:
        for place in places:
            outer, last = holder(model, place)
            if last.isdigit():
                del outer[int(last)]
            else:
                outer.ClearField(last)

    return change


def add(place: str, *values) -> Change:
    return lambda model: part(model, place).extend(values)


def first(place: str, value: Message) -> Change:
    """Puts a message before all others of its list."""

    def change(model: ModelProto) -> None:
        found = part(model, place)
        others = [copy.deepcopy(other) for other in found]
        del found[:]
        found.extend([value, *others])

    return change


def twice(place: str) -> Change:
    """Doubles an element of a list."""

    def change(model: ModelProto) -> None:
        outer, last = holder(model, place)
        same = outer[int(last)]
        outer.append(copy.deepcopy(same))

    return change


def swapped(place: str, one: int, other: int) -> Change:
    def change(model: ModelProto) -> None:
        found = part(model, place)
        elements = [copy.deepcopy(element) for element in found]
        elements[one], elements[other] = elements[other], elements[one]
        del found[:]
        found.extend(elements)

    return change


def changed(base: str | ModelProto, *changes: Change) -> ModelProto:
    model = parser.parse_model(base) if isinstance(base, str) else copy.deepcopy(base)
    for change in changes:
        change(model)
    return model


def places(message: Message, prefix: str = "") -> Iterator[tuple[str, Change]]:
    """Changes of all that a message holds, each with a name."""
    for field, content in message.ListFields():
        place = f"{prefix}{field.name}"
        yield f"{place}-cut", cut(place)
        if field.is_repeated:
            for index in range(len(content)):
                element = f"{place}.{index}"
                if field.message_type is None and index >= LONGEST:
                    break
                yield f"{element}-cut", cut(element)
                yield f"{element}-twice", twice(element)
                if index + 1 < len(content):
                    yield f"{element}-swapped", swapped(place, index, index + 1)
                if field.message_type is None:
                    yield from scalars(field, element, content[index])
        elif field.message_type is None:
            yield from scalars(field, place, content)
    for field, content in message.ListFields():
        place = f"{prefix}{field.name}"
        if field.message_type is None:
            continue
        for index, inner in enumerate(content if field.is_repeated else [content]):
            yield from places(inner, f"{place}.{index}." if field.is_repeated else f"{place}.")


def scalars(field, place: str, content) -> Iterator[tuple[str, Change]]:
    if isinstance(content, str):
        yield f"{place}-renamed", put(place, "other")
        yield f"{place}-emptied", put(place, "")
    elif isinstance(content, bytes):
        yield f"{place}-shortened", put(place, content[:-1])
    elif field.enum_type is not None:
        yield f"{place}-next", put(place, (content + 1) % 15)
    elif isinstance(content, int):
        for name, number in (("zero", 0), ("negative", -1), ("more", content + 1), ("large", 99)):
            if number != content:
                yield f"{place}-{name}", put(place, number)
