"""Inputs and outputs that are bound: the same results in the first run, which copies, and in later ones, which work in place."""

import gc
import threading
import weakref

import numpy as np
import pytest
import sardonyx
from sardonyx import ort
from sardonyx._shims.onnxruntime import errors

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
#: The first run of a session copies small arrays, the next ones read and write them where they are.
RUNS = 3
SMALL = (2, 3)
#: Too large to be read in place.
LARGE = (200, 300)


def session(graph):
    return ort.InferenceSession(sardonyx.parser.parse_model(HEAD + graph))


def relu():
    return session("g (float[N, M] x) => (float[N, M] y) { y = Relu (x) }")


def two():
    return session("g (float[N, M] x) => (float[N, M] y, float[N, M] z) { y = Relu (x) z = Neg (x) }")


def numbers(shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def is_right(found, x):
    return np.array_equal(found, np.maximum(x, 0))


@pytest.mark.parametrize("shape", [SMALL, LARGE, (0, 3)])
def test_outputs_are_written_into_the_arrays_that_they_are_bound_to(shape):
    model = two()
    binding = model.io_binding()
    x, y, z = numbers(shape), np.empty(shape, np.float32), np.empty(shape, np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(z))
    binding.bind_output("y", "cpu", 0, np.float32, y.shape, y.ctypes.data)
    for run in range(RUNS):
        x[:] = numbers(shape, run)
        y[:], z[:] = 7, 7
        model.run_with_iobinding(binding)
        assert is_right(y, x) and np.array_equal(z, -x)
        found = binding.copy_outputs_to_cpu()
        assert found[0] is z and np.array_equal(found[1], y)
        assert [value.numpy().tolist() for value in binding.get_outputs()] == [z.tolist(), y.tolist()]


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_new_outputs_stay_as_they_are_in_later_runs(shape):
    model = relu()
    binding = model.io_binding()
    x = numbers(shape)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    kept = []
    for run in range(RUNS):
        x[:] = numbers(shape, run)
        model.run_with_iobinding(binding)
        (y,) = binding.copy_outputs_to_cpu()
        assert y.flags.writeable and not np.shares_memory(x, y)
        kept.append((y, np.maximum(x, 0)))
    assert all(np.array_equal(y, expected) for y, expected in kept)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_an_array_may_be_input_and_output(shape):
    # `y` is written while `x` is still to be read.
    model = session("g (float[N, M] x) => (float[N, M] y) { a = Relu (x) b = Neg (x) y = Concat <axis = 0> (b, a) }")
    binding = model.io_binding()
    both = np.empty((2 * shape[0], shape[1]), np.float32)
    x = both[: shape[0]]
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(both))
    for run in range(RUNS):
        x[:] = numbers(shape, run)
        expected = np.concatenate([-x, np.maximum(x, 0)])
        model.run_with_iobinding(binding)
        assert np.array_equal(both, expected)


HEADS, KEY_HEADS, SIZE = 4, 2, 8
GROUPED = """g (float[B, S, 32] q, float[B, S, 16] k, float[B, S, 16] v, float[B, 2, P, 8] past_key, float[B, 2, P, 8] past_value,
        int32[B] seqlens_k, int32[1] total_sequence_length)
    => (float[B, S, 32] y, float[B, 2, T, 8] present_key, float[B, 2, T, 8] present_value) {
    y, present_key, present_value = com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2>
        (q, k, v, past_key, past_value, seqlens_k, total_sequence_length) }"""


def attend(q, keys, values):
    """Attention of the queries of one sequence, of which the last one sees all keys, by its formula."""
    rows, outputs = len(q), np.empty((len(q), HEADS, SIZE))
    for row in range(rows):
        seen = len(keys) - rows + row + 1
        for head in range(HEADS):
            group = head * KEY_HEADS // HEADS
            scores = keys[:seen, group].astype(float) @ q[row, head] / np.sqrt(SIZE)
            weights = np.exp(scores - scores.max())
            outputs[row, head] = weights @ values[:seen, group] / weights.sum()
    return outputs.reshape(rows, HEADS * SIZE)


@pytest.mark.parametrize("capacity", [16, 300])
@pytest.mark.parametrize("form", ["values", "addresses"])
def test_past_and_present_may_share_a_buffer(capacity, form):
    """Checks one buffer for past and present with room for later positions, which onnxruntime-genai binds."""
    model = ort.InferenceSession(
        sardonyx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>\n{GROUPED}')
    )
    rng, binding = np.random.default_rng(5), model.io_binding()
    buffers = {name: np.zeros((2, KEY_HEADS, capacity, SIZE), np.float32) for name in ("key", "value")}
    by_hand = {name: buffer.copy() for name, buffer in buffers.items()}
    lengths, own = np.array([0, 0]), [[np.zeros((0, KEY_HEADS, SIZE), np.float32)] * 2 for _ in range(2)]
    # The prompts differ in length, so rows of the shorter one are padding that later rows replace.
    for turn, rows in enumerate(([5, 3], [1, 1], [1, 1], [1, 1], [1, 1])):
        count = max(rows)
        lengths = lengths + rows
        feeds = {name: rng.normal(size=(2, count, width)).astype(np.float32) for name, width in (("q", 32), ("k", 16), ("v", 16))}
        total = np.array([max(lengths)], np.int32)
        feeds |= {"seqlens_k": (lengths - 1).astype(np.int32), "total_sequence_length": total}
        for name, value in feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(value))
        for name, buffer in buffers.items():
            if form == "values":
                value = ort.OrtValue.ortvalue_from_numpy(buffer)
                binding.bind_ortvalue_input(f"past_{name}", value)
                binding.bind_ortvalue_output(f"present_{name}", value)
            else:
                place = ("cpu", 0, np.float32, buffer.shape, buffer.ctypes.data)
                binding.bind_input(f"past_{name}", *place)
                binding.bind_output(f"present_{name}", *place)
        binding.bind_output("y")
        model.run_with_iobinding(binding)
        y = binding.get_outputs()[-1].numpy()
        wanted = model.run(None, feeds | {f"past_{name}": value for name, value in by_hand.items()})
        by_hand = dict(zip(by_hand, wanted[1:], strict=True))
        assert y.tobytes() == wanted[0].tobytes(), turn
        assert all(buffers[name].tobytes() == value.tobytes() for name, value in by_hand.items()), turn
        for member, length in enumerate(rows):
            q, k, v = (feeds[name][member, :length].reshape(length, -1, SIZE) for name in "qkv")
            own[member] = [np.concatenate(pair) for pair in zip(own[member], (k, v), strict=True)]
            np.testing.assert_allclose(y[member, :length], attend(q, *own[member]), rtol=0, atol=1e-5)
            for buffer, value in zip(buffers.values(), own[member], strict=True):
                assert np.array_equal(buffer[member, :, : lengths[member]], value.transpose(1, 0, 2)), turn
        binding.clear_binding_outputs()


def test_outputs_may_be_bound_to_memory_that_they_share():
    model = two()
    binding = model.io_binding()
    x, memory = numbers(SMALL), np.empty((3, 3), np.float32)
    binding.bind_cpu_input("x", x)
    of = ort.OrtValue.ortvalue_from_numpy
    binding.bind_ortvalue_output("y", of(memory[:2]))
    binding.bind_ortvalue_output("z", of(memory[1:]))
    for _ in range(RUNS):
        memory[:] = 7
        model.run_with_iobinding(binding)
        assert is_right(memory[0], x[0]) and np.array_equal(memory[1:], -x)


@pytest.mark.parametrize("shape", [SMALL, LARGE])
def test_memory_of_another_type_or_shape_is_refused(shape):
    model = relu()
    x = numbers(shape)
    good = np.empty(shape, np.float32)
    for _ in range(RUNS):
        for bad in (np.zeros(shape, np.int32), np.zeros((shape[1], shape[0]), np.float32)):
            binding = model.io_binding()
            binding.bind_cpu_input("x", x)
            binding.bind_output("y", "cpu", 0, bad.dtype, bad.shape, bad.ctypes.data)
            with pytest.raises(errors.InvalidArgument, match="the output 'y' is float32.*, but its memory is"):
                model.run_with_iobinding(binding)
            assert not bad.any()
            binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(good))
            model.run_with_iobinding(binding)
            assert is_right(good, x)


def test_memory_may_lie_anyhow():
    model = relu()
    x = numbers(SMALL)
    arrays = [
        np.zeros((2, 6), np.float32)[:, ::2],
        np.asfortranarray(np.zeros(SMALL, np.float32)),
        np.zeros(SMALL, np.float32)[::-1],
        np.frombuffer(bytearray(25), np.uint8)[1:].view(np.float32).reshape(SMALL),
        np.from_dlpack(np.zeros(SMALL, np.float32)),
    ]
    for array in arrays:
        binding = model.io_binding()
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(array))
        for _ in range(RUNS):
            array[:] = 7
            model.run_with_iobinding(binding)
            assert is_right(array, x), array.flags


def test_memory_that_must_not_be_written_stays():
    model = relu()
    fixed = np.zeros(SMALL, np.float32)
    fixed.flags.writeable = False
    binding = model.io_binding()
    binding.bind_cpu_input("x", numbers(SMALL))
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(fixed))
    for _ in range(RUNS):
        with pytest.raises(ValueError, match="read-only"):
            model.run_with_iobinding(binding)
        assert not fixed.any()


@pytest.mark.parametrize(
    "x",
    [
        numbers((2, 6))[:, ::2],
        np.asfortranarray(numbers(SMALL)),
        numbers(SMALL).tolist(),
        numbers(SMALL)[::-1],
        np.from_dlpack(numbers(SMALL)),
        memoryview(numbers(SMALL)),
        np.frombuffer(b"\0" + numbers(SMALL).tobytes(), np.uint8)[1:].view(np.float32).reshape(SMALL),
    ],
    ids=["strided", "Fortran", "lists", "backwards", "DLPack", "memoryview", "odd address"],
)
def test_inputs_may_lie_anyhow(x):
    model = relu()
    binding = model.io_binding()
    y = np.empty(SMALL, np.float32)
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(y))
    for _ in range(RUNS):
        y[:] = 7
        model.run_with_iobinding(binding)
        assert is_right(y, np.asarray(x))


def test_values_that_are_updated_in_place_are_seen():
    model = relu()
    value = ort.OrtValue.ortvalue_from_numpy(numbers(SMALL))
    binding = model.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    for run in range(RUNS):
        x = numbers(SMALL, run)
        value.update_inplace(x)
        model.run_with_iobinding(binding)
        assert is_right(binding.get_outputs()[0].numpy(), x)


def test_outputs_become_inputs():
    model = session("g (float[N] x) => (float[N] y) { y = Add (x, x) }")
    binding = model.io_binding()
    binding.bind_cpu_input("x", np.ones(3, np.float32))
    binding.bind_output("y")
    for _ in range(5):
        model.run_with_iobinding(binding)
        binding.bind_ortvalue_input("x", binding.get_outputs()[0])
    assert binding.copy_outputs_to_cpu()[0].tolist() == [32] * 3


def test_bindings_are_replaced_and_taken_back():
    model = two()
    binding = model.io_binding()
    one, other = np.zeros(SMALL, np.float32), np.zeros(SMALL, np.float32)
    of = ort.OrtValue.ortvalue_from_numpy
    binding.bind_cpu_input("x", numbers(SMALL))
    binding.bind_ortvalue_output("y", of(one))
    binding.bind_output("z")
    binding.bind_ortvalue_output("y", of(other))
    binding.bind_cpu_input("x", x := numbers(SMALL, 2))
    for _ in range(RUNS):
        model.run_with_iobinding(binding)
        assert not one.any() and is_right(other, x)
        assert len(binding.get_outputs()) == 2
    binding.clear_binding_outputs()
    assert binding.get_outputs() == [] and binding.copy_outputs_to_cpu() == []
    binding.bind_output("z")
    model.run_with_iobinding(binding)
    assert np.array_equal(binding.copy_outputs_to_cpu()[0], -x)
    binding.clear_binding_inputs()
    for _ in range(RUNS):
        with pytest.raises(errors.MissingInput, match="'x'"):
            model.run_with_iobinding(binding)


def test_bindings_are_of_one_session():
    one, other = relu(), relu()
    binding = other.io_binding()
    binding.bind_cpu_input("x", numbers(SMALL))
    binding.bind_output("y")
    with pytest.raises(ValueError, match="another session"):
        one.run_with_iobinding(binding)
    assert binding.get_outputs() == []
    other.run_with_iobinding(binding)
    with pytest.raises(TypeError, match="not an IOBinding"):
        other.run_with_iobinding({"x": numbers(SMALL)})
    with pytest.raises(TypeError, match="not RunOptions"):
        other.run_with_iobinding(binding, 3)
    with pytest.raises(RuntimeError, match="the model has no output 'q'; it has 'y'"):
        binding.bind_output("q")
    for wrong in (None, 3, "relu"):
        with pytest.raises(TypeError):
            ort.IOBinding(wrong)


def test_runs_can_be_ended():
    model = relu()
    binding = model.io_binding()
    binding.bind_cpu_input("x", numbers(SMALL))
    binding.bind_output("y")
    model.run_with_iobinding(binding)
    options = ort.RunOptions()
    options.terminate = True
    with pytest.raises(errors.Fail, match="stopped"):
        model.run_with_iobinding(binding, options)
    model.run_with_iobinding(binding, run_options=ort.RunOptions())


def test_values_that_are_no_tensors_are_bound():
    pair = session("g (float[N] x) => (seq(float[N]) y) { y = SequenceConstruct (x, x) }")
    texts = session("g (string[N] x) => (string[N] y, int64[K] n) { y = Identity (x) n = Shape (x) }")
    sequence, text = pair.io_binding(), texts.io_binding()
    sequence.bind_cpu_input("x", np.float32([1, 2]))
    sequence.bind_output("y")
    text.bind_cpu_input("x", np.array(["a", "b"]))
    memory = np.array(["", ""], object)
    text.bind_ortvalue_output("y", ort.OrtValue.ortvalue_from_numpy(memory))
    text.bind_output("n")
    for _ in range(RUNS):
        pair.run_with_iobinding(sequence)
        (items,) = sequence.copy_outputs_to_cpu()
        assert [item.tolist() for item in items] == [[1, 2], [1, 2]]
        memory[:] = ""
        texts.run_with_iobinding(text)
        assert memory.tolist() == ["a", "b"] and text.copy_outputs_to_cpu()[1].tolist() == [2]


def test_outputs_that_are_inputs_constants_or_each_other_are_bound():
    graph = """g (float[N] x) => (float[N] x, float[2] c, float[N] y, float[N] z, int64[R, K] n) <float[2] c = {1.5, -2}> {
        y = Relu (x) z = Identity (y) n = NonZero (x) }"""
    model = session(graph)
    x = np.float32([1, 0, -3])
    expected = [[1, 0, -3], [1.5, -2], [1, 0, 0], [1, 0, 0], [[0, 2]]]
    new, bound = model.io_binding(), model.io_binding()
    into = [np.zeros_like(np.array(one, np.float32)) for one in expected[:4]] + [np.zeros((1, 2), np.int64)]
    for binding in (new, bound):
        binding.bind_cpu_input("x", x)
    for port, array in zip(model.get_outputs(), into, strict=True):
        new.bind_output(port.name)
        bound.bind_ortvalue_output(port.name, ort.OrtValue.ortvalue_from_numpy(array))
    for _ in range(RUNS):
        model.run_with_iobinding(new)
        found = new.copy_outputs_to_cpu()
        assert [one.tolist() for one in found] == expected
        assert not any(np.shares_memory(one, x) for one in found)
        for array in into:
            array[...] = 7
        model.run_with_iobinding(bound)
        assert [one.tolist() for one in into] == expected
        assert [one.tolist() for one in model.run(None, {"x": x})] == expected


def test_sizes_that_have_one_name_may_differ():
    model = session("g (float[N] x, float[N] y) => (float[N] a, float[M] b) { a = Relu (x) b = Neg (y) }")
    binding = model.io_binding()
    a = np.zeros(2, np.float32)
    binding.bind_ortvalue_output("a", ort.OrtValue.ortvalue_from_numpy(a))
    binding.bind_output("b")
    binding.bind_cpu_input("x", np.float32([1, -2]))
    binding.bind_cpu_input("y", np.float32([1, 2, 3]))
    with pytest.warns(UserWarning, match="share a name"):
        model.run_with_iobinding(binding)
    for _ in range(RUNS):
        model.run_with_iobinding(binding)
        assert a.tolist() == [1, 0] and binding.copy_outputs_to_cpu()[1].tolist() == [-1, -2, -3]


def test_threads_share_a_binding():
    model = relu()
    binding = model.io_binding()
    x = numbers(SMALL)
    binding.bind_cpu_input("x", x)
    binding.bind_output("y")
    wrong = []

    def work():
        for _ in range(300):
            model.run_with_iobinding(binding)
            if not is_right(binding.copy_outputs_to_cpu()[0], x):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_session_that_has_its_binding_goes():
    model = relu()
    model.binding = model.io_binding()
    model.binding.bind_cpu_input("x", numbers(SMALL))
    model.binding.bind_output("y")
    model.run_with_iobinding(model.binding)
    gone = weakref.ref(model)
    del model
    gc.collect()
    assert gone() is None


def test_results_of_small_runs_have_memory_of_their_own():
    model = sardonyx.parser.parse_model(HEAD + "g (float[N] x) => (float[N] y, float[N] x) { y = Relu (x) }")
    own = sardonyx.Session(model)
    x, kept = np.float32([1, -2, 3]), []
    for run in range(RUNS):
        x[:] = [run, -run, 2]
        y, same = own(x)
        assert not np.shares_memory(same, x) and not np.shares_memory(y, x)
        kept.append((y, same))
    assert [(y.tolist(), same.tolist()) for y, same in kept] == [
        ([run, 0, 2], [run, -run, 2]) for run in range(RUNS)
    ]
    for run in range(RUNS):
        found = own.run({"x": x}, outputs=["x", "y", "x"])
        assert found["x"].tolist() == x.tolist() and found["y"].tolist() == [2, 0, 2]
        with pytest.raises(sardonyx.Error, match="element type"):
            own(x.astype(np.float64))
        with pytest.raises(sardonyx.Error, match="dimensions"):
            own(x.reshape(1, 3))


def test_limits_of_memory_count_small_outputs_in_every_run():
    model = sardonyx.parser.parse_model(HEAD + "g (float[N] x) => (float[N] y) { y = Relu (x) }")
    limited = sardonyx.Session(model, memory_limit=64)
    small, larger = np.ones(4, np.float32), np.ones(100, np.float32)
    for _ in range(RUNS):
        assert limited(small).tolist() == [1] * 4
        with pytest.raises(sardonyx.Error, match="memory limit"):
            limited(larger)
