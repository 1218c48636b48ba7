"""Tables for notebooks."""

from html.parser import HTMLParser

import onnx
import sardonyx

MODEL = sardonyx.parser.parse_model("""
    <ir_version: 10, opset_import: ["": 21]>
    g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
    { a = Sin (x) y = Cos (a) z = Relu (a) }
""")


class Tables(HTMLParser):
    """The cells of each table, by its caption."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.open: list[str] = []
        self.rows: list[list[str]] = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1] == "caption":
            self.rows = self.tables.setdefault(data, [])
        else:
            self.rows[-1][-1] += data


def tables(session) -> dict[str, list[list[str]]]:
    parser = Tables()
    parser.feed(session._repr_html_())
    assert parser.open == []
    return parser.tables


def test_a_session_shows_its_inputs_outputs_and_steps():
    session = sardonyx.Session(MODEL, threads=1)
    found = tables(session)
    assert found["Inputs"] == [["name", "type"], ["x", "float[N, 4]"]]
    assert found["Outputs"] == [["name", "type"], ["y", "float[N, 4]"], ["z", "float[N, 4]"]]
    facts = dict(found["Session"][1:])
    assert facts["threads"] == "1" and facts["precision"] == "exact" and facts["graph"] == "g"
    steps = {operator: int(number) for operator, number in found["Steps"][1:]}
    assert sum(steps.values()) == int(facts["steps"]) == len(session.steps())
    assert set(steps) == {operator for _, operator, _ in session.steps()}


def test_a_profile_shows_operators_and_steps():
    session = sardonyx.Session(MODEL, threads=1)
    profile = session.profile({"x": [[1, 2, 3, 4]]}, runs=3)
    found = tables(profile)
    facts = dict(found["Profile"][1:])
    assert facts["runs"] == "3" and facts["threads"] == "1"
    assert int(facts["steps"]) == len(session.steps()) == len(profile.steps)
    assert {row[0] for row in found["Operators"][1:]} == {op for _, op, _ in session.steps()}
    assert sorted(tuple(row[:3]) for row in found["Slowest steps"][1:]) == sorted(session.steps())


def test_values_are_escaped():
    name = "<b>&x</b>"
    model = onnx.ModelProto.FromString(MODEL)
    model.graph.name = name
    session = sardonyx.Session(model)
    assert name not in session._repr_html_()
    assert dict(tables(session)["Session"][1:])["graph"] == name


def test_the_session_with_the_names_of_onnxruntime_shows_the_same():
    session = sardonyx.InferenceSession(MODEL)
    assert tables(session)["Inputs"] == [["name", "type"], ["x", "float[N, 4]"]]
