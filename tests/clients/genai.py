"""Generates tokens with onnxruntime-genai and prints a line for each model.

python genai.py MODELS SCRATCH LIBRARY: MODELS has a directory for each model, as hubs have them, with `model.onnx` and `config.json`. Those whose
architecture onnxruntime-genai knows are run with the libonnxruntime LIBRARY. SCRATCH takes copies with a configuration.
"""

import json
import pathlib
import shutil
import sys

TYPES = ["gemma", "llama", "mistral", "phi", "qwen2", "qwen3"]


def take_library(library: pathlib.Path, scratch: pathlib.Path) -> None:
    """Lets onnxruntime-genai find the library where it looks for that of the package onnxruntime."""
    package = scratch / "packages/onnxruntime"
    (package / "capi").mkdir(parents=True, exist_ok=True)
    shutil.copy(library, package / "capi/libonnxruntime.so")
    (package / "__init__.py").write_text("")
    sys.path.insert(0, str(package.parent))


def write_config(config: dict, directory: pathlib.Path) -> None:
    """Writes the configuration of a decoder with the names that Optimum gives."""
    heads = config["num_attention_heads"]
    decoder = {
        "session_options": {"provider_options": []},
        "filename": "model.onnx",
        "head_size": config.get("head_dim") or config["hidden_size"] // heads,
        "hidden_size": config["hidden_size"],
        "num_attention_heads": heads,
        "num_hidden_layers": config["num_hidden_layers"],
        "num_key_value_heads": config.get("num_key_value_heads", heads),
        "inputs": {
            "input_ids": "input_ids",
            "attention_mask": "attention_mask",
            "position_ids": "position_ids",
            "past_key_names": "past_key_values.%d.key",
            "past_value_names": "past_key_values.%d.value",
        },
        "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
    }
    model = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    model.update(type=config["model_type"], vocab_size=config["vocab_size"], context_length=256, decoder=decoder)
    search = {"do_sample": False, "max_length": 64, "past_present_share_buffer": False}
    (directory / "genai_config.json").write_text(json.dumps({"model": model, "search": search}))


def generate(directory: pathlib.Path) -> list[list[int]]:
    """Generates with the greatest probability, and with beams for a batch of two."""
    import onnxruntime_genai as genai

    model = genai.Model(str(directory))
    sequences = []
    for options, prompt, count in (
        ({"max_length": 40}, [5, 17, 33, 80, 81, 9], 1),
        ({"max_length": 24, "num_beams": 3, "num_return_sequences": 2, "batch_size": 2}, [[5, 17, 33], [80, 81, 9]], 4),
    ):
        parameters = genai.GeneratorParams(model)
        parameters.set_search_options(do_sample=False, **options)
        generator = genai.Generator(model, parameters)
        generator.append_tokens(prompt)
        while not generator.is_done():
            generator.generate_next_token()
        sequences += [[int(token) for token in generator.get_sequence(index)] for index in range(count)]
    return sequences


def main(models: pathlib.Path, scratch: pathlib.Path, library: pathlib.Path) -> None:
    take_library(library, scratch)
    for directory in sorted(models.iterdir()):
        config = json.loads((directory / "config.json").read_text())
        if config["model_type"] not in TYPES or not (directory / "model.onnx").exists():
            continue
        copy = scratch / directory.name
        shutil.copytree(directory, copy, dirs_exist_ok=True)
        write_config(config, copy)
        try:
            result = {"sequences": generate(copy)}
        except Exception as error:
            result = {"error": str(error).split("\n")[0]}
        print(json.dumps({"name": directory.name, **result}))


main(*(pathlib.Path(argument) for argument in sys.argv[1:4]))
