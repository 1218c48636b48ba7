"""Models that describe their training."""

import gc
import io
import signal
import subprocess
import sys
import threading
import time
import weakref
import zipfile
from collections.abc import Mapping

import ml_dtypes
import numpy as np
import onnx
import pytest
import sardonyx
from test_notebook import tables

HEAD = '<notation: "full", ir_version: 10, opset_import: ["": 21]>'

# y = x * w; descent with the rate 0.5 towards a target.
DESCENT = sardonyx.parser.parse_model(HEAD + """
    g (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] frozen = {3, 4}> {
        y = Mul (x, w)
    }
    @<training_info: [{
        initialization: init () => (float[2] w0) {
            w0 = Constant <value_floats: floats = [5.0, 6.0]> ()
        },
        algorithm: descent (float[2] target) => (float loss, float[2] w1)
          <float[2] rate = {0.5, 0.5}> {
            d = Sub (y, target)
            s = Mul (d, d)
            loss = ReduceSum <keepdims: int = 0> (s)
            slope = Mul (x, d)
            change = Mul (slope, rate)
            w1 = Sub (w, change)
        },
        initialization_binding: ["w": "w0"],
        update_binding: ["w": "w1"]
    }]>
""")

# The first entry adds one, the second doubles.
ADD_AND_DOUBLE = sardonyx.parser.parse_model(HEAD + """
    g (float x) => (float y) <float w = {3}> { y = Mul (x, w) }
    @<training_info: [
        {
            algorithm: add (float summand) => (float added) { added = Add (w, summand) },
            update_binding: ["w": "added"]
        },
        {
            algorithm: double () => (float doubled) { doubled = Add (w, w) },
            update_binding: ["w": "doubled"]
        }
    ]>
""")

# A step keeps its input, in a variable that is an input of the main graph as well.
KEEP = sardonyx.parser.parse_model(HEAD + """
    g (float[8192] x, float[8192] w) => (float[8192] y) <float[8192] w> { y = Add (x, w) }
    @<training_info: [{
        algorithm: keep () => (float[8192] kept) { kept = Identity (x) },
        update_binding: ["w": "kept"]
    }]>
""".replace("<float[8192] w>", "<float[8192] w = {" + ", ".join(["0"] * 8192) + "}>"))

# A step that takes turns without end if it is asked to.
SLOW = sardonyx.parser.parse_model(HEAD + """
    g (float x) => (float y) <float w = {3}> { y = Mul (x, w) }
    @<training_info: [{
        algorithm: slow (int64 turns, bool go) => (float w1) {
            w1 = Loop <body: graph = b (int64 i, bool c, float v) => (bool d, float u) {
                d = Identity (c)
                u = Cos (v)
            }> (turns, go, w)
        },
        update_binding: ["w": "w1"]
    }]>
""")
# Noise, from the beginning on.
NOISE = sardonyx.parser.parse_model(HEAD + """
    g (float[4] x) => (float[4] y) <float[4] w = {0, 0, 0, 0}> { y = Add (x, w) }
    @<training_info: [{
        initialization: init () => (float[4] w0) { w0 = RandomNormal <shape: ints = [4]> () },
        algorithm: noise () => (float[4] w1) { w1 = RandomNormalLike (w) },
        initialization_binding: ["w": "w0"],
        update_binding: ["w": "w1"]
    }]>
""")
ENDLESS = {"x": np.float32(1), "turns": np.int64(2**40), "go": np.bool_(True)}
SHORT = ENDLESS | {"turns": np.int64(0)}

ONES = np.ones(2, np.float32)
DATA = {"x": np.array([1, 2], np.float32), "target": np.zeros(2, np.float32)}


def test_a_step_changes_what_inference_computes():
    """MODEL-18, TRAIN-06, TRAIN-10, TRAIN-11, TRAIN-24: as the same test of the library has it."""
    trainer = sardonyx.Trainer(DESCENT)
    assert trainer.entries == 1 and trainer.warnings == []
    assert trainer.infer({"x": ONES})["y"].tolist() == [1, 2]
    tried = trainer.evaluate(DATA)
    assert trainer.state["w"].tolist() == [1, 2]
    outputs = trainer.step(DATA)
    assert list(outputs) == list(tried) == ["y", "loss", "w1"]
    assert all((outputs[name] == tried[name]).all() for name in outputs)
    # w - rate * x * (y - target): 1 - 0.5 * 1 * 1, 2 - 0.5 * 2 * 4.
    assert outputs["loss"].item() == 17 and outputs["y"].tolist() == [1, 4]
    assert trainer.state["w"].tolist() == [0.5, -2]
    assert trainer.infer({"x": ONES})["y"].tolist() == [0.5, -2]
    assert trainer.state["w"].tolist() == [0.5, -2]


def test_initialization_brings_the_untrained_state_back():
    """TRAIN-02, TRAIN-21."""
    trainer = sardonyx.Trainer(DESCENT)
    trainer.step(DATA)
    trainer.initialize()
    assert trainer.state["w"].tolist() == [5, 6]


def test_entries_are_called_in_the_order_of_the_caller():
    """TRAIN-14, TRAIN-15, TRAIN-22; TRAIN-08: a variable of two entries is said."""
    one = {"x": np.float32(1), "summand": np.float32(1)}
    trainer = sardonyx.Trainer(ADD_AND_DOUBLE)
    assert trainer.entries == 2
    (warning,) = trainer.warnings
    assert "'w' is also assigned by another training entry" in warning
    assert trainer.step({"x": np.float32(1)}, entry=1)["doubled"].item() == 6
    assert trainer.step(one, entry=0)["added"].item() == 7
    both = trainer.iterate(one)
    assert [sorted(outputs) for outputs in both] == [["added", "y"], ["doubled", "y"]]
    assert trainer.state["w"].item() == 16


def test_what_goes_in_and_out_is_listed():
    trainer = sardonyx.Trainer(ADD_AND_DOUBLE, outputs=["added"], seed=5, threads=1)
    assert [port.name for port in trainer.inputs(0)] == ["x", "summand"]
    assert [port.name for port in trainer.inputs(1)] == ["x"]
    assert [port.name for port in trainer.outputs()] == ["added"]
    assert trainer.outputs(1) == []
    assert [port.name for port in trainer.inference_inputs] == ["x"]
    assert [port.type for port in trainer.inference_outputs] == ["float"]
    assert trainer.seed == 5 and trainer.precision == "exact"
    assert repr(trainer) == (
        "Trainer([(x: float, summand: float) => (added: float), (x: float) => ()], state=(w: float))"
    )


def test_a_state_is_a_mapping_that_stays_as_it_is():
    """TRAIN-09: only what a binding names is state."""
    trainer = sardonyx.Trainer(DESCENT)
    state = trainer.state
    assert isinstance(state, Mapping) and isinstance(state, sardonyx.State)
    assert list(state) == ["w"] and len(state) == 1 and "w" in state
    assert "frozen" not in state and 3 not in state
    assert state.types == {"w": "float[2]"} and repr(state) == "State(w: float[2])"
    for name in ("frozen", 3):
        with pytest.raises(KeyError):
            state[name]
    trainer.step(DATA)
    assert state["w"].tolist() == [1, 2]
    # An array of its own.
    state = trainer.state
    state["w"][:] = 0
    assert state["w"].tolist() == trainer.state["w"].tolist() == [0.5, -2]


def test_values_are_set_if_they_fit():
    """TRAIN-25."""
    trainer = sardonyx.Trainer(DESCENT)
    value = np.array([7, 8], np.float32)
    trainer.set_state("w", value)
    value[:] = 0
    assert trainer.state["w"].tolist() == [7, 8]
    trainer.set_state("w", [9, 10])
    assert trainer.state["w"].tolist() == [9, 10]
    for name, wrong, said in [
        ("w", np.zeros(3, np.float32), "the state variable 'w' is float[2], not float[3]"),
        ("w", np.zeros(2), "the state variable 'w' is float[2], not double[2]"),
        ("frozen", value, "state variable 'frozen' does not exist"),
        ("w", "text", "the new value of the state variable contains a str, which does not have type float"),
    ]:
        with pytest.raises(sardonyx.Error) as failed:
            trainer.set_state(name, wrong)
        assert failed.value.code == "input" and said in str(failed.value)
    assert trainer.state["w"].tolist() == [9, 10]


def test_what_is_assigned_does_not_depend_on_the_array_that_was_given():
    trainer = sardonyx.Trainer(KEEP)
    x = np.full(8192, 5, np.float32)
    trainer.step({"x": x})
    x[:] = 6
    assert (trainer.state["w"] == 5).all()
    trainer.iterate({"x": x})
    x[:] = 7
    assert (trainer.state["w"] == 6).all()
    trainer.set_state("w", x)
    x[:] = 8
    assert (trainer.state["w"] == 7).all()
    # What was returned is the caller's.
    kept = trainer.step({"x": x})["kept"]
    kept[:] = 9
    assert (trainer.state["w"] == 8).all()
    # A default of the main graph may be given for one call.
    assert (trainer.infer({"x": x, "w": x})["y"] == 16).all()
    assert (trainer.infer({"x": x})["y"] == 16).all()


@pytest.mark.parametrize("suffix", ["safetensors", "npz"])
def test_a_state_is_saved_and_loaded(tmp_path, suffix):
    path = tmp_path / f"state.{suffix}"
    trainer = sardonyx.Trainer(DESCENT)
    trainer.step(DATA)
    trainer.save(path)
    other = sardonyx.Trainer(DESCENT)
    other.load(str(path))
    assert other.state["w"].tolist() == [0.5, -2]
    with pytest.raises(sardonyx.Error, match="holds the state of another model"):
        sardonyx.Trainer(ADD_AND_DOUBLE).load(path)
    for call in (trainer.save, trainer.load):
        with pytest.raises(sardonyx.Error, match="use the extension .safetensors or .npz"):
            call(tmp_path / "state.bin")
        with pytest.raises(TypeError, match="expected a path"):
            call(5)


def test_numpy_reads_the_types_of_ml_dtypes_in_a_state(tmp_path):
    """Types that numpy lacks are stored as numpy itself stores arrays of ml_dtypes."""
    values = {
        "bfloat16": (ml_dtypes.bfloat16, [1.5, -2]),
        "float8e4m3fn": (ml_dtypes.float8_e4m3fn, [1.5, -2]),
        "int4": (ml_dtypes.int4, [-8, 7]),
        "uint4": (ml_dtypes.uint4, [0, 15]),
        "float": (np.float32, [1.5, -2]),
    }
    stored = ", ".join(f"{name}[2] {name}_w = raw {{{a}, {b}}}" for name, (_, (a, b)) in values.items())
    outputs = ", ".join(f"{name}[2] {name}_new" for name in values)
    nodes = "".join(f"{name}_new = Identity ({name}_w) " for name in values)
    bindings = ", ".join(f'"{name}_w": "{name}_new"' for name in values)
    model = sardonyx.parser.parse_model(HEAD + f"""
        g () => (float y) <{stored}> {{ y = Constant <value_float: float = 1.0> () }}
        @<training_info: [{{ algorithm: keep () => ({outputs}) {{ {nodes} }}, update_binding: [{bindings}] }}]>
    """)
    trainer = sardonyx.Trainer(model)
    trainer.step({})
    trainer.save(tmp_path / "state.npz")
    with np.load(tmp_path / "state.npz") as state, zipfile.ZipFile(tmp_path / "state.npz") as members:
        for name, (dtype, numbers) in values.items():
            array = state[f"{name}_w"].view(dtype)
            assert array.tolist() == np.array(numbers, dtype).tolist()
            theirs = io.BytesIO()
            np.save(theirs, np.array(numbers, dtype))
            assert members.read(f"{name}_w.npy") == theirs.getvalue()
    other = sardonyx.Trainer(model)
    other.load(tmp_path / "state.npz")
    for name, (dtype, numbers) in values.items():
        assert (other.state[f"{name}_w"] == np.array(numbers, dtype)).all()


def test_an_export_has_the_current_values(tmp_path):
    """TRAIN-27: of the class of the model that was given."""
    trainer = sardonyx.Trainer(DESCENT)
    trainer.step(DATA)
    further = sardonyx.Trainer(trainer.export())
    assert further.state["w"].tolist() == [0.5, -2]
    plain = trainer.export_inference()
    assert isinstance(plain, bytes)
    assert sardonyx.Session(plain)(ONES).tolist() == [0.5, -2]
    with pytest.raises(sardonyx.Error, match="no training information"):
        sardonyx.Trainer(plain)

    message = sardonyx.Trainer(onnx.ModelProto.FromString(DESCENT)).export_inference()
    assert isinstance(message, onnx.ModelProto) and not message.training_info
    assert len(onnx.ModelProto.FromString(trainer.export()).training_info) == 1

    trainer.export_to(tmp_path / "trained.onnx")
    trainer.export_to(str(tmp_path / "plain.onnxtxt"), inference=True)
    assert sardonyx.Trainer(tmp_path / "trained.onnx").state["w"].tolist() == [0.5, -2]
    assert sardonyx.Session(tmp_path / "plain.onnxtxt")(ONES).tolist() == [0.5, -2]


def test_values_in_data_files_are_not_lost(tmp_path):
    model = onnx.ModelProto.FromString(DESCENT)
    for initializer in model.graph.initializer:
        array = onnx.numpy_helper.to_array(initializer)
        initializer.CopyFrom(onnx.numpy_helper.from_array(array, initializer.name))
    onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, size_threshold=0, location="values")
    trainer = sardonyx.Trainer(tmp_path / "model.onnx")
    trainer.step(DATA)
    # `frozen` still lies in the file.
    exported = onnx.ModelProto.FromString(trainer.export())
    assert not any(initializer.external_data for initializer in exported.graph.initializer)
    assert sardonyx.Trainer(exported).state["w"].tolist() == [0.5, -2]
    (tmp_path / "there").mkdir()
    trainer.export_to(tmp_path / "there/trained.onnx")
    assert sardonyx.Trainer(tmp_path / "there/trained.onnx").state["w"].tolist() == [0.5, -2]


def test_what_is_wrong_is_said_and_changes_nothing():
    """TRAIN-23 and others: errors are those of the library."""
    trainer = sardonyx.Trainer(DESCENT)
    for call, code, said in [
        (lambda: trainer.step(DATA, entry=1), "argument", "training step 1 does not exist"),
        (lambda: trainer.evaluate(DATA, entry=1), "argument", "training step 1 does not exist"),
        (lambda: trainer.inputs(1), "argument", "training step 1 does not exist"),
        (lambda: trainer.step({"x": ONES}), "input", "target"),
        (lambda: trainer.step(DATA | {"w": ONES}), "input", "'w' is a state variable, not an input"),
        (lambda: trainer.step(DATA | {"z": ONES}), "input", "'z'"),
        (lambda: trainer.iterate(DATA | {"z": ONES}), "input", "no training step has an input 'z'"),
        (lambda: trainer.infer({5: ONES}), "input", "the name 5 of an input is not a str"),
        (lambda: trainer.infer(ONES), "input", "which is not a dict"),
        (lambda: trainer.infer({"x": np.ones(3, np.float32)}), "input", "dimension 0 is 3 and should be 2"),
        (lambda: sardonyx.Trainer(DESCENT, outputs=["z"]), "output", "has an output 'z'"),
        (lambda: sardonyx.Trainer(DESCENT, threads=0), "argument", "threads must be 1 or more"),
        (lambda: sardonyx.Trainer(DESCENT, precision="some"), "argument", "'some', which does not exist"),
        (lambda: sardonyx.Trainer(b"text"), "format", ""),
    ]:
        with pytest.raises(sardonyx.Error) as failed:
            call()
        assert failed.value.code == code and said in str(failed.value), said
    assert trainer.state["w"].tolist() == [1, 2]
    with pytest.raises(TypeError):
        sardonyx.Trainer(5)
    with pytest.raises(ValueError, match="seconds"):
        trainer.step(DATA, timeout=-1)


def test_a_step_ends_early_and_leaves_the_state():
    trainer = sardonyx.Trainer(SLOW)
    for call in (trainer.step, trainer.evaluate, trainer.iterate):
        with pytest.raises(sardonyx.Error) as failed:
            call(ENDLESS, timeout=0.05)
        assert failed.value.code == "stopped"
    with sardonyx.deadline(0.05), pytest.raises(sardonyx.Error):
        trainer.step(ENDLESS)
    flag = sardonyx.StopFlag()
    flag.stop()
    with pytest.raises(sardonyx.Error):
        trainer.infer({"x": np.float32(1)}, stop=flag)
    assert trainer.state["w"].item() == 3
    trainer = sardonyx.Trainer(NOISE)
    with pytest.raises(sardonyx.Error):
        trainer.initialize(stop=flag)
    assert trainer.state["w"].tolist() == [0, 0, 0, 0]


def test_reading_waits_for_no_step_and_steps_wait_for_each_other():
    trainer = sardonyx.Trainer(SLOW)
    flag = sardonyx.StopFlag()
    ended = []

    def endless():
        with pytest.raises(sardonyx.Error):
            trainer.step(ENDLESS, stop=flag)
        ended.append("first")

    thread = threading.Thread(target=endless)
    thread.start()
    try:
        # The other thread is at it as soon as a step waits for it.
        latest = time.monotonic() + 60
        while True:
            assert time.monotonic() < latest, "no step waited"
            time.sleep(0.01)
            try:
                trainer.step(SHORT, timeout=0.05)
            except sardonyx.Error as error:
                assert error.code == "stopped" and "another thread" in error.message
                break
        raised = sardonyx.StopFlag()
        raised.stop()
        with pytest.raises(sardonyx.Error, match="stopped while another thread"):
            trainer.step(SHORT, stop=raised)
        assert trainer.infer({"x": np.float32(2)})["y"].item() == 6
        assert trainer.evaluate(SHORT)["w1"].item() == 3
        assert trainer.state["w"].item() == 3
        assert ended == []
    finally:
        flag.stop()
        thread.join()
    assert trainer.step(SHORT)["w1"].item() == 3


def test_threads_lose_no_step():
    trainer = sardonyx.Trainer(ADD_AND_DOUBLE, threads=1)
    one = {"x": np.float32(1), "summand": np.float32(1)}
    threads = [
        threading.Thread(target=lambda: [trainer.step(one) for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert trainer.state["w"].item() == 203


MEMORY = f"""
import re
import numpy as np
import onnx
import sardonyx

def peak():
    with open("/proc/self/status") as status:
        return int(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1]) // 1024

model = onnx.ModelProto.FromString(sardonyx.parser.parse_model({HEAD!r} + '''
    g (float[2] x) => (float y) <float[2] w = {{1, 1}}> {{ y = ReduceSum <keepdims: int = 0> (x) }}
    @<training_info: [{{
        algorithm: keep (float rate) => (float[2] w1) {{ w1 = Mul (w, rate) }},
        update_binding: ["w": "w1"]
    }}]>'''))
for port in [*model.graph.input, *model.training_info[0].algorithm.output]:
    for dim in port.type.tensor_type.shape.dim:
        dim.dim_value = 2**24
weights = onnx.numpy_helper.from_array(np.ones(2**24, np.float32), "w")
model.graph.initializer[0].CopyFrom(weights)
trainer = sardonyx.Trainer(model.SerializeToString(), outputs=["y"], threads=1)
data = {{"x": np.ones(2**24, np.float32), "rate": np.float32(2)}}
trainer.step(data)
first = peak()
for _ in range(3):
    trainer.step(data)
print(peak() - first, trainer.state["w"][0])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_step_writes_new_values_over_old_ones():
    """A second copy of the weights would take 64 MB."""
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    more, value = run.stdout.split()
    assert float(value) == 16 and int(more) < 40, run.stdout


PROGRAM = f"""
import signal
import sys
import numpy as np
import sardonyx

trainer = sardonyx.Trainer({SLOW!r})
endless = {{"x": np.float32(1), "turns": np.int64(2**40), "go": np.bool_(True)}}
found = []

def handler(*_):
    # What reads the state works within a step; what changes it would wait for the step for ever.
    found.append(trainer.infer({{"x": np.float32(2)}})["y"].item())
    found.append(trainer.state["w"].item())
    try:
        trainer.initialize()
    except RuntimeError as error:
        found.append("same thread" in str(error))
    1 / 0

# A shell lets what it starts in the background ignore Ctrl-C.
is_handled = sys.argv[1] == "handler"
signal.signal(signal.SIGINT, handler if is_handled else signal.default_int_handler)
print("runs", flush=True)
try:
    getattr(trainer, sys.argv[2])(endless)
except (KeyboardInterrupt, ZeroDivisionError) as error:
    print(type(error).__name__, trainer.state["w"].item(), *found)
"""


@pytest.mark.parametrize(
    ("how", "call", "said"),
    [
        ("plain", "step", "KeyboardInterrupt 3.0\n"),
        ("plain", "iterate", "KeyboardInterrupt 3.0\n"),
        ("plain", "evaluate", "KeyboardInterrupt 3.0\n"),
        ("handler", "step", "ZeroDivisionError 3.0 6.0 3.0 True\n"),
    ],
)
def test_ctrl_c_ends_a_step_and_leaves_the_state(how, call, said):
    command = [sys.executable, "-c", PROGRAM, how, call]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "runs\n"
            time.sleep(1)
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
            # Without the check it would run for years.
            found, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (found, process.returncode) == (said, 0)


def test_random_numbers_follow_the_seed():
    x = {"x": np.zeros(4, np.float32)}

    def drawn(seed):
        trainer = sardonyx.Trainer(NOISE, seed=seed)
        return [trainer.step(x)["w1"].tolist() for _ in range(3)]

    first = drawn(7)
    assert first == drawn(7) != drawn(8)
    assert first[0] != first[1]
    # A step that fails draws nothing.
    trainer = sardonyx.Trainer(NOISE, seed=7)
    with pytest.raises(sardonyx.Error):
        trainer.step({"x": np.zeros(5, np.float32)})
    assert trainer.step(x)["w1"].tolist() == first[0]
    trainer.initialize()
    initial = trainer.state["w"].tolist()
    assert initial != [0, 0, 0, 0]
    trainer.step(x)
    trainer.initialize()
    assert trainer.state["w"].tolist() == initial


def test_notebooks_show_tables():
    trainer = sardonyx.Trainer(ADD_AND_DOUBLE)
    found = tables(trainer)
    assert found["State"] == [["name", "type"], ["w", "float"]]
    assert found["Step 0: inputs"][1:] == [["x", "float"], ["summand", "float"]]
    assert found["Step 1: outputs"][1:] == [["y", "float"], ["doubled", "float"]]
    assert found["Inference: inputs"][1:] == [["x", "float"]]
    facts = dict(found["Trainer"][1:])
    assert facts["training steps"] == "2" and "'w'" in facts["warning"]


def test_the_model_that_was_given_is_not_kept():
    class Model:
        def SerializeToString(self):
            return DESCENT

    model = Model()
    gone = []
    trainer = sardonyx.Trainer(model)
    weakref.finalize(model, gone.append, True)
    del model
    gc.collect()
    assert gone == [True]
    assert isinstance(trainer.export(), bytes)


# Examples are divided among two devices, so gradients are summed up.
DIVIDED = sardonyx.parser.parse_model("""
    <ir_version: 11, opset_import: ["": 21]>
    g (float[8, 1] x) => (float[8, 1] y) <float[1, 1] w = {0}, float[1] b = {0}> {
        y = Gemm (x, w, b) @<device_configurations: [{configuration_id: "pair", sharding_spec: [{
            tensor_name: "x", device: [0, 1], sharded_dim: [{axis: 0, simple_sharding: [{num_shards: 2}]}]}]}]>
    }
    @<configuration: [{name: "pair", num_devices: 2}]>
""")


@pytest.mark.parametrize("configuration", [None, "pair"])
def test_steps_run_on_devices(configuration, tmp_path):
    model = sardonyx.add_training(DIVIDED, "squared-error", learning_rate=0.1)
    x = np.arange(8, dtype=np.float32).reshape(8, 1) / 8
    data = {"x": x, "target": 2 * x + 1}
    whole = sardonyx.Trainer(model, threads=1)
    divided = sardonyx.Trainer(model, devices=True, configuration=configuration, threads=1)
    assert (whole.devices, divided.devices) == (0, 2)
    for _ in range(5):
        np.testing.assert_allclose(divided.step(data)["loss"], whole.step(data)["loss"], rtol=1e-5)
    assert list(divided.state) == ["w", "b"]
    for name in divided.state:
        np.testing.assert_allclose(divided.state[name], whole.state[name], rtol=1e-5)
    np.testing.assert_allclose(divided.infer({"x": x})["y"], whole.infer({"x": x})["y"], rtol=1e-5)
    np.testing.assert_allclose(divided.evaluate(data)["loss"], whole.evaluate(data)["loss"], rtol=1e-5)
    (found,) = divided.iterate(data)
    assert "loss" in found
    divided.save(tmp_path / "state.npz")
    whole.load(tmp_path / "state.npz")
    assert whole.state["w"] == divided.state["w"]
    with pytest.raises(sardonyx.Error) as late:
        divided.step(data, timeout=0)
    assert late.value.code in ("stopped", "run")
    assert whole.state["w"] == divided.state["w"]


@pytest.mark.parametrize("division", ["pipeline", "tensor", "batch"])
def test_inference_runs_where_the_weights_are(division):
    line = sardonyx.parser.parse_model("""
        <ir_version: 11, opset_import: ["": 21]>
        g (float[N, 2] x) => (float[N, 2] y) <float[2, 2] v = {1, 2, 3, 4}, float[2, 2] w = {4, 3, 2, 1}> {
            a = MatMul (x, v)
            b = Relu (a)
            y = MatMul (b, w)
        }
    """)
    model = sardonyx.add_training(line, "squared-error", learning_rate=0.01)
    model = sardonyx.shard(model, devices=2, **{division: True})
    x = np.arange(8, dtype=np.float32).reshape(4, 2) / 8
    whole, divided = sardonyx.Trainer(model, threads=1), sardonyx.Trainer(model, devices=True, threads=1)
    for _ in range(2):
        np.testing.assert_allclose(divided.infer({"x": x})["y"], whole.infer({"x": x})["y"], rtol=1e-5)
        data = {"x": x, "target": np.ones((4, 2), np.float32)}
        np.testing.assert_allclose(divided.step(data)["loss"], whole.step(data)["loss"], rtol=1e-5)


def test_devices_that_cannot_be_are_refused():
    model = sardonyx.add_training(DIVIDED, "squared-error")
    assert sardonyx.Trainer(model, devices=False).devices == 0
    with pytest.raises(sardonyx.Error, match="'many'") as unknown:
        sardonyx.Trainer(model, devices=True, configuration="many")
    assert unknown.value.code == "argument"
    with pytest.raises(sardonyx.Error) as none:
        sardonyx.Trainer(DESCENT, devices=True)
    assert none.value.code == "argument"
    for wrong in (2, "pair", None):
        with pytest.raises(TypeError, match="devices"):
            sardonyx.Trainer(model, devices=wrong)
    with pytest.raises(sardonyx.Error, match="configuration is 'pair', but devices is False") as apart:
        sardonyx.Trainer(model, configuration="pair")
    assert apart.value.code == "argument"
    with pytest.raises(sardonyx.Error, match="the deadline must be"):
        sardonyx.Trainer(model, devices=True, device_timeout=0)


ENDLESS_ON_DEVICES = """
import signal
import numpy as np
import sardonyx

# A shell lets what it starts in the background ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
model = sardonyx.parser.parse_model('''
    <notation: "full", ir_version: 11, opset_import: ["": 21]>
    g (float[64, 64] x, int64 turns) => (float[64, 64] y) <float w = {1}> {
        go = Constant <value_int: int = 1> ()
        yes = Cast <to: int = 9> (go)
        y = Loop (turns, yes, x) <body: graph = b (int64 i, bool c, float[64, 64] v) => (bool d, float[64, 64] z) {
            d = Identity (c)
            z = MatMul (v, v)
        }> @<device_configurations: [{configuration_id: "c", pipeline_stage: 1}]>
    }
    @<configuration: [{name: "c", num_devices: 2}],
      training_info: [{
        algorithm: double () => (float new_w) { new_w = Add (w, w) },
        update_binding: ["w": "new_w"]
    }]>
''')
trainer = sardonyx.Trainer(model, devices=True)
feeds = {"x": np.zeros((64, 64), np.float32), "turns": np.int64(1)}
trainer.step(feeds)
print("runs", flush=True)
try:
    trainer.step({**feeds, "turns": np.int64(2**40)})
except KeyboardInterrupt:
    print("interrupted", trainer.state["w"], flush=True)
trainer.step(feeds)
print(trainer.state["w"])
"""


def test_ctrl_c_ends_a_step_on_devices():
    command = [sys.executable, "-c", ENDLESS_ON_DEVICES]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "runs\n"
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (said, process.returncode) == ("interrupted 2.0\n4.0\n", 0)
