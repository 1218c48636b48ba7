"""Models that are divided among devices."""

import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import sardonyx
from sardonyx.distributed import Worker
from test_distributed import queues


def network():
    generator = np.random.default_rng(1)
    w1 = generator.standard_normal((64, 256), np.float32)
    w2 = generator.standard_normal((256, 64), np.float32)
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("MatMul", ["x", "w1"], ["a"]),
            onnx.helper.make_node("Relu", ["a"], ["b"]),
            onnx.helper.make_node("MatMul", ["b", "w2"], ["y"]),
        ],
        "network",
        [onnx.helper.make_tensor_value_info("x", 1, ["N", 64])],
        [onnx.helper.make_tensor_value_info("y", 1, ["N", 64])],
        [onnx.numpy_helper.from_array(w1, "w1"), onnx.numpy_helper.from_array(w2, "w2")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


NETWORK = network()
X = np.random.default_rng(2).standard_normal((6, 64), np.float32)
Y = sardonyx.Session(NETWORK)(X)


@pytest.mark.parametrize("division", ["tensor", "pipeline", "batch"])
def test_a_divided_model_computes_the_same(division):
    model = sardonyx.shard(NETWORK, 2, **{division: True})
    assert type(model) is onnx.ModelProto and model.ir_version == 11
    (configuration,) = model.configuration
    assert (configuration.name, configuration.num_devices) == (f"{division}-2", 2)
    worker = Worker(model)
    assert worker.devices == 2
    assert np.allclose(worker.run({"x": X})["y"], Y, rtol=1e-4, atol=1e-4)


def test_tensor_is_the_default_and_configurations_have_names():
    model = sardonyx.shard(NETWORK, devices=2)
    assert model == sardonyx.shard(NETWORK, 2, tensor=True)
    both = sardonyx.shard(model, 3, batch=True, name="three")
    assert [each.name for each in both.configuration] == ["tensor-2", "three"]
    assert Worker(both, "three").devices == 3
    with pytest.raises(sardonyx.Error, match="'three'") as raised:
        sardonyx.shard(both, 2, name="three")
    assert raised.value.code == "argument"


def test_the_answer_is_what_was_given(tmp_path):
    content = NETWORK.SerializeToString()
    answer = sardonyx.shard(content, 2)
    assert type(answer) is bytes
    path = tmp_path / "network.onnx"
    path.write_bytes(content)
    assert sardonyx.shard(path, 2) == answer
    # Saving moves the values of the model that is saved.
    onnx.save(onnx.ModelProto.FromString(content), path, save_as_external_data=True, location="weights", size_threshold=0)
    inside = sardonyx.shard(path, 2)
    (tmp_path / "weights").unlink()
    assert np.allclose(Worker(inside).run({"x": X})["y"], Y, rtol=1e-4, atol=1e-4)


def test_ranks_have_models_of_their_own():
    ranks = sardonyx.shard(NETWORK, 2, local=True, dims={"N": 6})
    assert len(ranks) == 2
    assert all(type(rank) is onnx.ModelProto for rank in ranks)
    assert any(node.domain == "com.microsoft" for node in ranks[0].graph.node)
    assert ranks == sardonyx.shard(sardonyx.shard(NETWORK, 2), local=True, dims={"N": 6})

    def run(model, transport):
        with sardonyx.distributed.Rank(model, transport) as rank:
            return rank.run({"x": X})["y"]

    with ThreadPoolExecutor(2) as pool:
        for result in pool.map(run, ranks, queues(2)):
            assert np.allclose(result, Y, rtol=1e-4, atol=1e-4)
    exchanges = {
        node.op_type
        for node in sardonyx.shard(NETWORK, 2, local=True, dims={"N": 6}, collectives="tensorrt")[0].graph.node
    }
    assert "DistCollective" in exchanges


def test_sizes_without_names_are_given_by_place():
    model = onnx.ModelProto()
    model.CopyFrom(NETWORK)
    model.graph.input[0].type.tensor_type.shape.dim[0].Clear()
    with pytest.raises(sardonyx.Error, match="dimension 0 of the input 'x' is open"):
        sardonyx.shard(model, 2, local=True)
    ranks = sardonyx.shard(model, 2, local=True, dims={"x[0]": 6})
    assert [dim.dim_value for dim in ranks[1].graph.input[0].type.tensor_type.shape.dim] == [6, 64]


WRONG = [
    ({}, "the number of devices is not given"),
    ({"devices": 1}, "devices must be from 2 to 1024, not 1"),
    ({"devices": 2, "batch": True, "pipeline": True}, "at most one of tensor, pipeline and batch may be True"),
    ({"devices": 2, "collectives": "tensorrt"}, "configuration and collectives need local=True"),
    ({"devices": 2, "local": True, "configuration": "c"}, "devices and configuration exclude each other"),
    ({"local": True, "batch": True}, "tensor, pipeline, batch and name need devices"),
    ({"local": True, "dims": {"N": 3}}, "the model has no device configuration"),
    ({"devices": 2, "local": True, "collectives": "own"}, "collectives is 'own', which does not exist"),
    ({"devices": 2, "dims": {"N": -1}}, "dims holds 'N': -1"),
    ({"devices": 2, "dims": {"Q": 3}}, "the inputs have no dimension 'Q'; sizes are: N"),
    ({"devices": 2, "local": True, "dims": {"Q": 3}}, "the inputs have no dimension 'Q'; sizes are: N"),
    ({"devices": 2, "local": True}, "dimension 0 of the input 'x' is open: float[N, 64]"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_wrong_options_are_explained(options, message):
    with pytest.raises(sardonyx.Error) as raised:
        sardonyx.shard(NETWORK, **options)
    assert raised.value.code == "argument"
    assert raised.value.message.startswith(message)


def test_a_model_that_is_not_divided_is_warned_of():
    small = sardonyx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) { y = Relu (x) }
    """)
    with pytest.warns(UserWarning, match="the model is not divided: no MatMul .* use batch=True"):
        sardonyx.shard(small, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sardonyx.shard(NETWORK, 2)
