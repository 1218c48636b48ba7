"""Export a small Whisper the ways that exporters do, and store what ONNX Runtime says of it.

    python whisper.py WHAT OUT

The architecture is that of transformers, small, with random weights. WHAT is one of

    decoder  encoder, decoder and decoder with past, as optimum exports them (TorchScript)
    merged   both decoders as the branches of an If, as optimum merges them
    dynamo   both decoders by the exporter that torch has now (torch.export)
    loop     greedy decoding, a Loop around the decoder with past, from a torch script

Prints a line of JSON per case: name, model, inputs (NAME=FILE words), expected; and alone, a model that
is a part of this one.
"""

import contextlib
import json
import os
import pathlib
import sys
import warnings

import numpy as np

import reference

# Before transformers: nothing is fetched.
os.environ["HF_HUB_OFFLINE"] = "1"

import torch  # noqa: E402
from transformers import WhisperConfig, WhisperForConditionalGeneration  # noqa: E402
from transformers.cache_utils import DynamicCache, EncoderDecoderCache  # noqa: E402

LAYERS, HEADS, WIDTH, WORDS, FRAMES, BINS = 2, 4, 64, 211, 50, 16
PAD, START, END = 0, 1, 2
# Sentences, words that each of them has.
SIZES = ((1, 1), (1, 5), (3, 7))
OPSET = 18


def main(what, out):
    out.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    make = {"decoder": decoder, "merged": merged, "dynamo": dynamo, "loop": loop}[what]
    # Exporters print on the way.
    with contextlib.redirect_stdout(sys.stderr), torch.no_grad():
        cases = list(make(Cases(out), small_model()))
    for case in cases:
        print(json.dumps(case))


def small_model():
    torch.manual_seed(0)
    config = WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=BINS,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        d_model=WIDTH,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        max_source_positions=FRAMES,
        max_target_positions=40,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        decoder_start_token_id=START,
        init_std=0.2,
    )
    model = WhisperForConditionalGeneration(config).eval()
    # Without this biases are 0 and scales 1, and of all those of one size an exporter keeps one.
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            around = 1.0 if name.endswith("norm.weight") else 0.0
            parameter.data.copy_(around + 0.1 * torch.randn_like(parameter))
    return model


class Cases:
    """Makes inputs, runs ONNX Runtime on them and stores both."""

    def __init__(self, out):
        self.out = out
        self.random = np.random.default_rng(0)
        self.count = 0

    def words(self, *dims):
        return self.random.integers(END + 1, WORDS, dims)

    def floats(self, *dims):
        return self.random.standard_normal(dims, dtype=np.float32)

    def case(self, name, model, inputs, alone=None):
        """The case, and what ONNX Runtime gives."""
        folder = self.out / f"case{self.count}"
        self.count += 1
        folder.mkdir()
        words = []
        for index, (key, array) in enumerate(inputs.items()):
            path = folder / f"{index}.npy"
            np.save(path, array)
            words.append(f"{key}={path}")
        outputs = reference.run(model, inputs)
        # A branch gives nothing for what only the other one makes.
        floats = {key: array for key, array in outputs.items() if array.size and array.dtype.kind == "f"}
        reference.check_spread(floats)
        expected = folder / "expected.npz"
        reference.write_npz(expected, outputs)
        case = {"name": name, "model": str(model), "inputs": words, "expected": str(expected)}
        if alone:
            case["alone"] = str(alone)
        return case, outputs


def exported(out, model):
    """As `optimum-cli export onnx --task automatic-speech-recognition-with-past` does it."""
    from optimum.exporters.onnx import onnx_export_from_model

    task = "automatic-speech-recognition-with-past"
    sizes = {"nb_max_frames": 2 * FRAMES, "feature_size": BINS}
    onnx_export_from_model(model, out, task=task, opset=OPSET, do_validation=False, **sizes)


def past_of(outputs):
    return {
        name.replace("present", "past_key_values"): array
        for name, array in outputs.items()
        if name.startswith("present")
    }


def decoder(cases, model):
    exported(cases.out, model)
    for batch, length in SIZES:
        size = f"b{batch} n{length}"
        features = {"input_features": cases.floats(batch, BINS, 2 * FRAMES)}
        case, outputs = cases.case(f"encoder b{batch}", cases.out / "encoder_model.onnx", features)
        yield case
        heard = outputs["last_hidden_state"]
        first = {"input_ids": cases.words(batch, length), "encoder_hidden_states": heard}
        case, outputs = cases.case(f"decoder {size}", cases.out / "decoder_model.onnx", first)
        yield case
        then = {"input_ids": cases.words(batch, 1), **past_of(outputs)}
        path = cases.out / "decoder_with_past_model.onnx"
        yield cases.case(f"decoder, past {size}", path, then)[0]


def merged(cases, model):
    exported(cases.out, model)
    path, alone = cases.out / "decoder_model_merged.onnx", cases.out / "decoder_model.onnx"
    for batch, length in SIZES:
        size = f"b{batch} n{length}"
        heard = cases.floats(batch, FRAMES, WIDTH)
        # A past of no words, for the cross attention as well: so optimum's own runtime calls it.
        nothing = {
            f"past_key_values.{layer}.{side}.{part}": np.zeros((batch, HEADS, 0, WIDTH // HEADS), np.float32)
            for layer in range(LAYERS)
            for side in ("decoder", "encoder")
            for part in ("key", "value")
        }
        first = {"input_ids": cases.words(batch, length), "encoder_hidden_states": heard, **nothing}
        first["use_cache_branch"] = np.array([False])
        case, outputs = cases.case(f"merged, no past {size}", path, first, alone)
        yield case
        then = {"input_ids": cases.words(batch, 1), "encoder_hidden_states": heard, **past_of(outputs)}
        then["use_cache_branch"] = np.array([True])
        yield cases.case(f"merged, past {size}", path, then, alone)[0]


class First(torch.nn.Module):
    """The decoder's first step: a start, and what the encoder heard."""

    def __init__(self, model):
        super().__init__()
        self.decoder, self.proj_out = model.model.decoder, model.proj_out

    def forward(self, input_ids, encoder_hidden_states):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        logits = self.step(input_ids, encoder_hidden_states, cache)
        return logits, tensors(cache.self_attention_cache), tensors(cache.cross_attention_cache)

    def step(self, input_ids, encoder_hidden_states, cache, mask=None):
        inputs = {"input_ids": input_ids, "attention_mask": mask, "past_key_values": cache}
        inputs["encoder_hidden_states"] = encoder_hidden_states
        return self.proj_out(self.decoder(use_cache=True, **inputs).last_hidden_state)


class Then(First):
    """Its later steps: what was kept of earlier ones."""

    def forward(self, input_ids, own, cross):
        cache = cache_of(own, cross)
        logits = self.step(input_ids, cross[0], cache)
        return logits, tensors(cache.self_attention_cache)


def cache_of(own, cross):
    caches = []
    for kept in (own, cross):
        cache = DynamicCache()
        for layer in range(LAYERS):
            cache.update(kept[2 * layer], kept[2 * layer + 1], layer)
        caches.append(cache)
    cache = EncoderDecoderCache(*caches)
    cache.is_updated = dict.fromkeys(range(LAYERS), True)
    return cache


def tensors(cache):
    return [tensor for layer in cache.layers for tensor in (layer.keys, layer.values)]


def dynamo(cases, model):
    ids, heard = torch.from_numpy(cases.words(2, 5)), torch.from_numpy(cases.floats(2, FRAMES, WIDTH))
    first, then = cases.out / "first.onnx", cases.out / "then.onnx"
    names = ("input_ids", "encoder_hidden_states")
    shapes = ({0: "batch", 1: "words"}, {0: "batch", 1: "frames"})
    options = {"dynamo": True, "opset_version": OPSET, "external_data": False, "verbose": False}
    torch.onnx.export(
        First(model), (ids, heard), first, input_names=names, dynamic_shapes=shapes, **options
    )
    _, own, cross = First(model)(ids, heard)
    past = [
        f"past.{layer}.{side}.{part}"
        for side in ("own", "cross")
        for layer in range(LAYERS)
        for part in ("key", "value")
    ]
    kept = [{0: "batch", 2: size} for size in ("past", "frames")]
    shapes = (shapes[0], [kept[0]] * len(own), [kept[1]] * len(cross))
    torch.onnx.export(
        Then(model), (ids, own, cross), then, input_names=[names[0], *past], dynamic_shapes=shapes, **options
    )
    for batch, length in SIZES:
        size = f"b{batch} n{length}"
        inputs = (cases.words(batch, length), cases.floats(batch, FRAMES, WIDTH))
        case, outputs = cases.case(f"dynamo {size}", first, dict(zip(names, inputs)))
        yield case
        _, *kept = outputs.values()
        for words in (1, 3):
            inputs = {"input_ids": cases.words(batch, words), **dict(zip(past, kept))}
            yield cases.case(f"dynamo, past {size}+{words}", then, inputs)[0]


class FirstOfLoop(First):
    """The first step as a loop wants it: what is kept is one tensor. The tracer wants to be given
    the mask."""

    def forward(self, input_ids, encoder_hidden_states):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        words = input_ids.shape[1]
        mask = torch.ones(words, words, dtype=torch.bool).tril()[None, None]
        mask = mask.expand(input_ids.shape[0], 1, words, words)
        logits = self.step(input_ids, encoder_hidden_states, cache, mask)
        own, cross = tensors(cache.self_attention_cache), tensors(cache.cross_attention_cache)
        return logits[:, -1], torch.stack(own), torch.stack(cross)


class ThenOfLoop(First):
    def forward(self, input_ids, own, cross):
        cache = cache_of(own, cross)
        mask = torch.ones(1, own.shape[3] + 1, dtype=torch.bool)[None, None]
        mask = mask.expand(input_ids.shape[0], 1, 1, own.shape[3] + 1)
        logits = self.step(input_ids, cross[0], cache, mask)
        return logits[:, -1], torch.stack(tensors(cache.self_attention_cache))


class Greedy(torch.nn.Module):
    """The likeliest word after the words so far, until all sentences have ended."""

    def __init__(self, first, then):
        super().__init__()
        self.first, self.then = first, then

    def forward(self, input_ids, encoder_hidden_states, most):
        logits, own, cross = self.first(input_ids, encoder_hidden_states)
        word = logits.argmax(-1, keepdim=True)
        words = torch.cat([input_ids, word], dim=1)
        ended = word.eq(2)
        count = torch.ones_like(most)
        while bool(count < most) and not bool(ended.all()):
            logits, own = self.then(word, own, cross)
            word = logits.argmax(-1, keepdim=True).masked_fill(ended, 0)
            words = torch.cat([words, word], dim=1)
            ended = ended | word.eq(2)
            count = count + 1
        return words, logits, own


def loop(cases, model):
    ids, heard = torch.from_numpy(cases.words(2, 5)), torch.from_numpy(cases.floats(2, FRAMES, WIDTH))
    _, own, cross = FirstOfLoop(model)(ids, heard)
    first = torch.jit.trace(FirstOfLoop(model), (ids, heard), check_trace=False)
    then = torch.jit.trace(ThenOfLoop(model), (ids[:, :1], own, cross), check_trace=False)
    script = torch.jit.script(Greedy(first, then))
    path = cases.out / "loop.onnx"
    names = ["input_ids", "encoder_hidden_states", "most"]
    axes = {"input_ids": {0: "batch", 1: "words"}, "encoder_hidden_states": {0: "batch", 1: "frames"}}
    axes |= {"all_words": {0: "batch", 1: "all"}, "logits": {0: "batch"}, "kept": {1: "batch", 3: "steps"}}
    torch.onnx.export(
        script,
        (ids, heard, torch.tensor(12)),
        str(path),
        dynamo=False,
        opset_version=OPSET,
        input_names=names,
        output_names=["all_words", "logits", "kept"],
        dynamic_axes=axes,
    )
    for batch, length in SIZES:
        for most in (1, 24):
            inputs = (cases.words(batch, length), cases.floats(batch, FRAMES, WIDTH), np.array(most))
            name = f"loop b{batch} n{length}+{most}"
            yield cases.case(name, path, dict(zip(names, inputs)))[0]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], pathlib.Path(sys.argv[2]))
