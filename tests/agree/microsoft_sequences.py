"""Cases of tests/agree/microsoft.py: sparse and linear attention, causal convolutions, mixtures of
experts. Forms that ONNX Runtime's CPU does not run bring a program in numpy."""

import math

import numpy as np


def cases(make):
    found = [*sparse_attention(make), *mixtures(make)]
    # The CPU has kernels for 32-bit floats alone.
    on_cpu = make.elem == np.float32
    return [*found, *linear_attention(make, on_cpu), *causal_convolutions(make, on_cpu)]


def sparse_rows(layouts):
    """Block masks as compressed sparse rows."""
    starts = [np.concatenate([[0], np.cumsum(layout.sum(axis=1))]) for layout in layouts]
    columns = [np.nonzero(layout)[1] for layout in layouts]
    longest = max(map(len, columns))
    columns = [np.pad(row, (0, longest - len(row)), constant_values=-1) for row in columns]
    return np.array(starts, np.int32), np.array(columns, np.int32)


def sparse_attention(make):
    f, size, blocks, n, kv, h = make.floats, 16, 4, 4, 2, 32
    lower = np.tril(np.ones((blocks, blocks), np.int32))
    found = []

    def layouts(count):
        drawn = [lower * make.ints(0, 2, (blocks, blocks)) for _ in range(count)]
        return [layout | np.eye(blocks, dtype=np.int32) for layout in drawn]

    def case(name, s, lengths, total, masks, packed=False, capacity=None, extra=None, **flags):
        b, capacity = len(lengths), capacity or size * blocks
        given = dict(query=f(b, s, n * h), key=f(b, s, kv * h), value=f(b, s, kv * h))
        if packed:
            given = dict(query=f(b, s, (n + 2 * kv) * h), key=None, value=None)
        given |= dict(past_key=f(b, kv, capacity, h), past_value=f(b, kv, capacity, h))
        given["block_row_indices"], given["block_col_indices"] = sparse_rows(masks)
        given["total_sequence_length"] = np.array([total], np.int32)
        given["key_total_sequence_lengths"] = np.array(lengths, np.int32)
        given |= extra or {}
        attributes = dict(num_heads=n, kv_num_heads=kv, sparse_block_size=size) | flags
        # After the first call its kernel reads scores of sequences that are shorter than the longest
        # from wrong places, and rotates all by the positions of the first.
        on_cpu = total == s or len(set(lengths)) == 1
        found.append(
            make.case(
                name,
                "SparseAttention",
                given,
                ["output", "present_key", "present_value"],
                ["block_row_indices", "block_col_indices", "cos_cache", "sin_cache"],
                shared=dict(past_key="present_key", past_value="present_value"),
                oracle=None if on_cpu else lambda given: sparse(given, attributes),
                **attributes,
            )
        )

    at = np.outer(np.arange(80), 1.0 / 10.0 ** (np.arange(h // 2) / h * 2))
    caches = dict(cos_cache=np.cos(at).astype(make.elem), sin_cache=np.sin(at).astype(make.elem))
    part = {name: array[:, : h // 4] for name, array in caches.items()}
    case("first call", 50, [50, 50], 50, layouts(1))
    case("first call, layouts", 50, [50, 50], 50, layouts(2))
    case("first call, a layout for each head", 33, [33], 33, layouts(4))
    case("dense", 20, [20, 20], 20, [lower])
    case("later call", 1, [40, 40], 40, layouts(2))
    case("later call, lengths differ", 1, [40, 23], 40, layouts(2))
    case("later call of several", 5, [60, 60], 60, layouts(2))
    case("later call of several, lengths differ", 5, [60, 37], 60, layouts(2))
    case("first block", 1, [9], 9, layouts(4))
    case("packed", 50, [50, 50], 50, layouts(2), packed=True)
    case("packed, later", 1, [63, 63], 63, layouts(4), packed=True)
    case("packed, later, lengths differ", 1, [40, 63], 63, layouts(4), packed=True)
    case("scale", 50, [50], 50, layouts(1), scale=0.2)
    case("large cache", 1, [40], 40, layouts(2), capacity=90)
    rotary = dict(do_rotary=1)
    case("rotary", 50, [50, 50], 50, layouts(2), extra=caches, **rotary)
    case("rotary, interleaved", 40, [40], 40, layouts(2), extra=caches, rotary_interleaved=1, **rotary)
    case("rotary, later", 1, [40, 40], 40, layouts(2), extra=caches, **rotary)
    case("rotary, later, lengths differ", 1, [40, 23], 40, layouts(2), extra=caches, **rotary)
    case("rotary, later of several", 3, [40], 40, layouts(2), extra=caches, **rotary)
    case("rotary, later of several, lengths differ", 3, [40, 23], 40, layouts(2), extra=caches, **rotary)
    case("rotary of a part", 50, [50], 50, layouts(2), extra=part, **rotary)
    case("rotary, packed", 1, [40, 40], 40, layouts(2), packed=True, extra=caches, **rotary)
    return found


def sparse(given, flags):
    """What sparse attention gives."""
    ints = {name: array for name, array in given.items() if array is not None and array.dtype.kind == "i"}
    given = {
        name: array.astype(np.float64)
        for name, array in given.items()
        if array is not None and array.dtype.kind == "f"
    }
    n, kv, size = flags["num_heads"], flags["kv_num_heads"], flags["sparse_block_size"]
    b, s, _ = given["query"].shape
    h = given["past_key"].shape[-1]
    if "key" in given:
        parts = [given["query"], given["key"], given["value"]]
    else:
        parts = np.split(given["query"], [n * h, (n + kv) * h], axis=-1)
    query, key, value = (part.reshape(b, s, -1, h) for part in parts)
    keys, values = given["past_key"].copy(), given["past_value"].copy()
    starts, columns = ints["block_row_indices"], ints["block_col_indices"]
    output = np.zeros((b, s, n, h))
    scale = flags.get("scale") or 1 / math.sqrt(h)
    for batch, total in enumerate(ints["key_total_sequence_lengths"]):
        begin = 0 if ints["total_sequence_length"][0] == s else total - s
        places = np.arange(begin, begin + s)
        turned = [turn(part[batch], places, given, flags) for part in (query, key)]
        keys[batch][:, places] = turned[1].transpose(1, 0, 2)
        values[batch][:, places] = value[batch].transpose(1, 0, 2)
        for head in range(n):
            layout = head % len(starts)
            for row, place in enumerate(places):
                block = place // size
                first, last = starts[layout][block : block + 2]
                seen = np.isin(np.arange(place + 1) // size, columns[layout][first:last])
                scores = keys[batch, head * kv // n, : place + 1] @ turned[0][row, head] * scale
                scores = np.exp(scores - scores[seen].max()) * seen
                output[batch, row, head] = scores @ values[batch, head * kv // n, : place + 1] / scores.sum()
    return [output.reshape(b, s, n * h), keys, values]


def turn(rows, places, given, flags):
    """Rotates `[places, heads, features]` by the places."""
    if not flags.get("do_rotary"):
        return rows
    cos, sin = (given[name][places][:, None] for name in ("cos_cache", "sin_cache"))
    half = cos.shape[-1]
    rest = rows[..., 2 * half :]
    if flags.get("rotary_interleaved"):
        one, two = rows[..., 0 : 2 * half : 2], rows[..., 1 : 2 * half : 2]
        pairs = np.stack([one * cos - two * sin, two * cos + one * sin], axis=-1)
        return np.concatenate([pairs.reshape(*one.shape[:-1], -1), rest], axis=-1)
    one, two = rows[..., :half], rows[..., half : 2 * half]
    return np.concatenate([one * cos - two * sin, two * cos + one * sin, rest], axis=-1)


def mixtures(make):
    f, tokens, hidden, inner, experts = make.floats, 7, 12, 10, 5
    found = []

    def case(name, dims=(tokens,), wide=1, bias=False, third=False, on_cpu=True, **flags):
        flags = dict(k=2, activation_type="relu") | flags
        count = math.prod(dims)
        given = dict(input=f(*dims, hidden), router_probs=f(count, experts))
        given["fc1_experts_weights"] = f(experts, wide * inner, hidden, scale=0.4)
        given["fc1_experts_bias"] = f(experts, wide * inner) if bias else None
        given["fc2_experts_weights"] = f(experts, hidden, inner, scale=0.4)
        given["fc2_experts_bias"] = f(experts, hidden) if bias else None
        if third:
            given["fc3_experts_weights"] = f(experts, inner, hidden, scale=0.4)
            given["fc3_experts_bias"] = f(experts, inner) if bias else None
        constants = [name for name in given if name.startswith("fc")]
        # Its kernel for 16-bit floats does not transpose the matrices of the experts.
        is_told = on_cpu and make.elem == np.float32
        oracle = None if is_told else lambda given: [mixed(given, flags)]
        found.append(make.case(name, "MoE", given, ["output"], constants, oracle=oracle, **flags))

    for activation in ("relu", "gelu", "silu", "identity"):
        case(activation, activation_type=activation)
        case(f"{activation}, bias", bias=True, activation_type=activation)
    for k in (1, 3, experts):
        case(f"k {k}", k=k, bias=True)
    case("normalized", normalize_routing_weights=1, bias=True)
    case("three axes", dims=(2, 4), bias=True)
    swiglu = dict(activation_type="swiglu", wide=2)
    case("swiglu", swiglu_fusion=1, bias=True, **swiglu)
    limits = dict(activation_alpha=1.702, activation_beta=1.0, swiglu_limit=0.6)
    case("swiglu, limit", swiglu_fusion=1, bias=True, **swiglu, **limits)
    case("swiglu, halves", swiglu_fusion=2, bias=True, on_cpu=False, **swiglu, **limits)
    case("swiglu, third", third=True, bias=True, on_cpu=False, activation_type="swiglu", **limits)
    case("silu, third", third=True, bias=True, on_cpu=False, activation_type="silu")
    case("silu, third without bias", third=True, on_cpu=False, activation_type="silu")
    return found


def mixed(given, flags):
    given = {name: array.astype(np.float64) for name, array in given.items() if array is not None}
    tokens = given["input"].reshape(-1, given["input"].shape[-1])
    scores = np.exp(given["router_probs"] - given["router_probs"].max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    output = np.zeros_like(tokens)
    for index, token in enumerate(tokens):
        picked = np.argsort(-scores[index])[: flags["k"]]
        weights = scores[index][picked]
        if flags.get("normalize_routing_weights"):
            weights = weights / weights.sum()
        for expert, weight in zip(picked, weights):

            def layer(name, x, expert=expert):
                bias = given.get(f"{name}_experts_bias")
                return given[f"{name}_experts_weights"][expert] @ x + (0 if bias is None else bias[expert])

            first = layer("fc1", token)
            third = layer("fc3", token) if "fc3_experts_weights" in given else None
            output[index] += weight * layer("fc2", activated(first, third, flags))
    return output.reshape(given["input"].shape)


def activated(first, third, flags):
    kind = flags["activation_type"]
    if kind != "swiglu":
        gate = {
            "relu": lambda x: np.maximum(x, 0),
            "gelu": lambda x: x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
            "silu": lambda x: x / (1 + np.exp(-x)),
            "identity": lambda x: x,
        }[kind](first)
        return gate if third is None else gate * third
    if third is not None:
        gate, linear = first, third
    elif flags["swiglu_fusion"] == 1:
        gate, linear = first[0::2], first[1::2]
    else:
        gate, linear = np.split(first, 2)
    limit = flags.get("swiglu_limit", math.inf)
    gate, linear = np.minimum(gate, limit), np.clip(linear, -limit, limit)
    swish = gate / (1 + np.exp(-flags.get("activation_alpha", 1.0) * gate))
    return swish * (linear + flags.get("activation_beta", 0.0))


def linear_attention(make, on_cpu):
    f, b, k_size, v_size = make.floats, 2, 8, 6
    found = []

    def case(name, rule, heads, key_heads, t, past=True, each=False, one=False, window=0, **flags):
        key = f(b, t, key_heads, k_size)
        key = (key / np.linalg.norm(key.astype(np.float32), axis=-1, keepdims=True)).astype(make.elem)
        given = dict(query=f(b, t, heads * k_size), key=key.reshape(b, t, -1))
        given["value"] = f(b, t, key_heads * v_size)
        state = (b, key_heads, k_size, v_size)
        state = (window, *state) if window else state
        given["past_state"] = f(*state) if past else None
        gated, delta = "gated" in rule, "delta" in rule
        width = key_heads * (k_size if each else 1)
        given["decay"] = -np.abs(f(b, t, width)) if gated else None
        given["beta"] = (make.positive(b, t, 1 if one else key_heads) / 2).astype(make.elem) if delta else None
        flags = dict(update_rule=rule, q_num_heads=heads, kv_num_heads=key_heads) | flags
        if window:
            flags["state_window"] = window
        oracle = None
        if window or not on_cpu:
            oracle = lambda given: recurrent(given, flags)  # noqa: E731
        outputs = ["output", "present_state"]
        found.append(make.case(name, "LinearAttention", given, outputs, oracle=oracle, **flags))

    for rule in ("linear", "gated", "delta", "gated_delta"):
        case(f"{rule}", rule, 2, 2, 5)
        case(f"{rule}, one step", rule, 2, 2, 1)
        case(f"{rule}, without state", rule, 2, 2, 5, past=False)
        case(f"{rule}, shared states", rule, 4, 2, 5)
        case(f"{rule}, shared queries", rule, 2, 6, 5)
        case(f"{rule}, scale", rule, 2, 2, 3, scale=0.3)
        for t in (1, 2, 3, 7):
            case(f"{rule}, window, {t} steps", rule, 2, 2, t, window=3)
        case(f"{rule}, window without state", rule, 4, 2, 2, past=False, window=3)
    case("decay of features", "gated", 2, 2, 4, each=True)
    case("decay of features, delta", "gated_delta", 4, 2, 4, each=True)
    case("one rate", "delta", 2, 2, 4, one=True)
    case("window of one", "gated_delta", 2, 4, 4, window=1)
    return found


def recurrent(given, flags):
    given = {name: array.astype(np.float64) for name, array in given.items() if array is not None}
    heads, key_heads = flags["q_num_heads"], flags["kv_num_heads"]
    b, t, _ = given["query"].shape

    def apart(name, count):
        return given[name].reshape(b, t, count, -1)

    query, key, value = apart("query", heads), apart("key", key_heads), apart("value", key_heads)
    window = flags.get("state_window", 0)
    state = np.zeros((b, key_heads, key.shape[-1], value.shape[-1]))
    if "past_state" in given:
        state = given["past_state"][-1] if window else given["past_state"]
    scale = flags.get("scale") or 1 / math.sqrt(key.shape[-1])
    outputs, states = [], []
    every = max(heads, key_heads)
    for step in range(t):
        if "decay" in given:
            state = state * np.exp(apart("decay", key_heads)[:, step])[..., None]
        written = value[:, step]
        if "beta" in given:
            rate = given["beta"][:, step, :, None]
            written = rate * (written - np.einsum("bhkv,bhk->bhv", state, key[:, step]))
        state = state + np.einsum("bhk,bhv->bhkv", key[:, step], written)
        seen = np.repeat(state, every // key_heads, axis=1)
        asked = np.repeat(query[:, step], every // heads, axis=1)
        outputs.append(scale * np.einsum("bhkv,bhk->bhv", seen, asked).reshape(b, -1))
        states.append(state)
    if window:
        states = [np.zeros_like(state)] * max(window - t, 0) + states[-window:]
        state = np.stack(states)
    return [np.stack(outputs, axis=1), state]


def causal_convolutions(make, on_cpu):
    f, b, c = make.floats, 2, 6
    found = []

    def case(name, length, k=4, bias=True, past=True, window=0, channels=(c,), **flags):
        last = flags.get("channels_last", 0)
        before = (k - 1) * flags.get("dilation", 1)

        def dims(places):
            return (b, places, *channels) if last else (b, c, places)

        given = dict(input=f(*dims(length)), weight=f(c, 1, k))
        given["bias"] = f(c) if bias else None
        state = (window, *dims(before)) if window else dims(before)
        given["past_state"] = f(*state) if past else None
        if window:
            flags["state_window"] = window
        oracle = None
        if window or not on_cpu:
            oracle = lambda given: causal(given, flags)  # noqa: E731
        outputs = ["output", "present_state"]
        constants = ["weight", "bias"]
        found.append(make.case(name, "CausalConvWithState", given, outputs, constants, oracle=oracle, **flags))

    for length in (1, 2, 9):
        case(f"{length} positions", length)
        case(f"{length} positions, without state", length, past=False)
        case(f"{length} positions, without bias", length, bias=False)
        case(f"{length} positions, dilation", length, dilation=3)
        case(f"{length} positions, channels last", length, channels_last=1)
        case(f"{length} positions, several axes of channels", length, channels=(2, 3), channels_last=1, dilation=2)
        for window in (1, 3):
            case(f"{length} positions, window {window}", length, window=window)
        case(f"{length} positions, window, channels last", length, window=3, channels_last=1, dilation=2)
        case(f"{length} positions, window without state", length, window=4, past=False)
    for activation in ("silu", "swish", "none"):
        case(f"{activation}", 5, activation=activation)
    case("kernel of one", 5, k=1)
    case("kernel of one, channels last", 5, k=1, channels_last=1)
    return found


def causal(given, flags):
    given = {name: array.astype(np.float64) for name, array in given.items() if array is not None}
    x, weight = given["input"], given["weight"]
    last, window = flags.get("channels_last", 0), flags.get("state_window", 0)
    c, _, k = weight.shape
    dilation = flags.get("dilation", 1)
    before = (k - 1) * dilation

    def timed(array):
        """As batch, positions, channels."""
        if last:
            return array.reshape(*array.shape[:2], c)
        return np.moveaxis(array, 1, 2)

    def back(array):
        if last:
            return array.reshape(*array.shape[:2], *x.shape[2:])
        return np.moveaxis(array, 2, 1)

    rows = timed(x)
    past = np.zeros((x.shape[0], before, c))
    if "past_state" in given:
        past = timed(given["past_state"][-1] if window else given["past_state"])
    extended = np.concatenate([past, rows], axis=1)
    length = rows.shape[1]
    y = np.zeros(rows.shape)
    for tap in range(k):
        y += extended[:, tap * dilation : tap * dilation + length] * weight[:, 0, tap]
    y += given.get("bias", 0)
    if flags.get("activation", "none") != "none":
        y = y / (1 + np.exp(-y))
    states = [back(extended[:, count : count + before]) for count in range(length + 1)]
    if not window:
        return [back(y), states[-1]]
    kept = [np.zeros_like(states[0])] * max(window - length, 0) + states[1:][-window:]
    return [back(y), np.stack(kept)]
