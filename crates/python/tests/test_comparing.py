"""``sardonyx.compare``: models, stored values and double."""

import numpy as np
import pytest

import sardonyx

TEXT = """
<ir_version: 10, opset_import: ["": 21]>
g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] w = {1, 2, 3, 4}> {
    a = MatMul (x, w) b = Relu (a) y = Neg (b)
}
"""


def model(text: str = TEXT) -> bytes:
    return sardonyx.parser.parse_model(text)


X = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_the_first_difference_is_found() -> None:
    assert sardonyx.compare(model(), model(), {"x": X})["first"] is None
    found = sardonyx.compare(model(), model(TEXT.replace("4}", "5}")), {"x": X}, all=True)
    assert found["first"]["name"] == "a" and found["part"]["inputs"] == ["x"]
    assert [value["differs"] for value in found["values"]] == [True, True, True]
    followed = sardonyx.compare(model(), model(TEXT.replace("4}", "5}")), {"x": X}, bisect=True)
    assert followed["first"]["name"] == "a"


def test_inputs_are_drawn() -> None:
    found = sardonyx.compare(model(), model(), seed=3, dims={"N": 5})
    assert found["compared"] == 3 and found["first"] is None
    assert sardonyx.compare(model(), None, dims={"N": 5})["first"] is None


def test_stored_values_are_compared_by_name() -> None:
    y = sardonyx.Session(model()).run({"x": X})["y"]
    assert sardonyx.compare(model(), {"y": y}, {"x": X})["first"] is None
    found = sardonyx.compare(model(), {"y": y + 1, "other": y}, {"x": X})
    assert found["first"]["name"] == "y" and found["not_in_model"] == ["other"]
    assert sardonyx.compare(model(), {"y": y + 1e-3}, {"x": X}, atol=0.1)["first"] is None
    with pytest.raises(sardonyx.Error, match="none of the stored values"):
        sardonyx.compare(model(), {"z": y}, {"x": X})
    with pytest.raises(sardonyx.Error, match="no input"):
        sardonyx.compare(model(), model(), {"z": X})
