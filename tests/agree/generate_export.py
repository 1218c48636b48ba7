"""Writes small language models and encoders with random weights as directories, as a hub has them.

Usage: generate_export.py DIRECTORY [NAME...]. Each directory has an ONNX file, the configuration, a tokenizer and a chat
template; the torch model lies beside it in `torch`, for the answers that `generate_answers.py` computes.
"""

import json
import os
import shutil
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

VOCABULARY = 300
SIZES = {"vocab_size": VOCABULARY, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
LAYERS = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
GROUPED = {**SIZES, **LAYERS, "num_key_value_heads": 2, "intermediate_size": 128, "max_position_embeddings": 256}

DECODERS = {
    "gpt2": ("GPT2Config", {**SIZES, "n_layer": 2, "n_embd": 64, "n_head": 4, "n_positions": 256}),
    "llama": ("LlamaConfig", GROUPED),
    "qwen2": ("Qwen2Config", GROUPED),
    "qwen3": ("Qwen3Config", {**GROUPED, "head_dim": 16}),
    "phi": ("PhiConfig", {**GROUPED, "num_key_value_heads": 4}),
    "gemma": ("GemmaConfig", {**GROUPED, "head_dim": 16}),
    "mistral": ("MistralConfig", GROUPED),
    "opt": ("OPTConfig", {**SIZES, "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "ffn_dim": 128,
                          "word_embed_proj_dim": 64, "max_position_embeddings": 256}),
    "gpt-neox": ("GPTNeoXConfig", {**SIZES, **LAYERS, "intermediate_size": 128, "max_position_embeddings": 256}),
    "bloom": ("BloomConfig", {**SIZES, "n_layer": 2, "hidden_size": 64, "n_head": 4}),
}

# Models of the repository, for tests that need no Python.
TINY = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
DECODERS |= {
    "tiny-gpt2": ("GPT2Config", {**SIZES, "n_layer": 2, "n_embd": 32, "n_head": 2, "n_positions": 64}),
    "tiny-qwen2": ("Qwen2Config", {**GROUPED, **TINY, "num_key_value_heads": 1}),
}

SMALL_BERT = {"vocab_size": VOCABULARY, **LAYERS, "intermediate_size": 128, "max_position_embeddings": 64, "pad_token_id": 2}
ENCODERS = {
    "bert-mean": ("BertConfig", SMALL_BERT, "AutoModel", "feature-extraction"),
    "bert-labels": ("BertConfig", {**SMALL_BERT, "num_labels": 3}, "AutoModelForSequenceClassification", "text-classification"),
    "bert-ranks": ("BertConfig", {**SMALL_BERT, "num_labels": 1}, "AutoModelForSequenceClassification", "text-classification"),
    "tiny-bert": ("BertConfig", {**SMALL_BERT, "hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64,
                                 "id2label": {0: "no", 1: "yes"}}, "AutoModelForSequenceClassification", "text-classification"),
    "bert-tokens": ("BertConfig", {**SMALL_BERT, "id2label": {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC", 4: "I-LOC"}},
                    "AutoModelForTokenClassification", "token-classification"),
}

TEMPLATE = """{%- for message in messages -%}
<|{{ message.role }}|>
{{ message.content | trim }}{{ eos_token }}
{% endfor -%}
{%- if add_generation_prompt -%}<|assistant|>
{% endif -%}"""


def texts(count):
    """Returns lines in several scripts, and lines of the sources of torch."""
    words = Path(torch.__file__).parent.glob("nn/modules/*.py")
    lines = [line.strip() for path in sorted(words) for line in path.read_text().splitlines() if len(line.strip()) > 12]
    other = ["naïve café — 東京の天気は晴れ", "Привет, мир! 👋🏽 🇩🇪", "שלום עולם", "नमस्ते दुनिया", "a\u0301 e\u0308 \u200b x",
             "\ttabs\tand  spaces ", "1234567890 + 3.14159e-10", "مرحبا بالعالم", "👩‍👩‍👧‍👦 family", "한국어 문장입니다."]
    step = max(1, len(lines) // count)
    return (other + lines[::step])[:count]


def train_tokenizer(kind):
    """Trains a tokenizer of one of the kinds that hubs have."""
    special = ["<s>", "</s>", "<pad>", "<|user|>", "<|assistant|>", "<|system|>", "[UNK]", "[CLS]", "[SEP]"]
    lines = texts(2000)
    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=alphabet)
    elif kind == "metaspace":
        tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="[UNK]", fuse_unk=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
        special += [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=["▁", "e", "t"])
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=special)
    tokenizer.train_from_iterator(lines, trainer)
    if kind == "words":
        ends = [("[CLS]", tokenizer.token_to_id("[CLS]")), ("[SEP]", tokenizer.token_to_id("[SEP]"))]
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=ends)
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "[UNK]"}
    if kind == "words":
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names)
    # sentence-transformers renders a text by the template as a message if there is one.
    if kind != "words":
        fast.chat_template = TEMPLATE
    return fast


def export(root, name):
    """Writes the directory of a model."""
    target = root / name
    shutil.rmtree(target, ignore_errors=True)
    torch.manual_seed(7)
    if name in DECODERS:
        config_name, sizes = DECODERS[name]
        tokenizer = train_tokenizer("metaspace" if name in ("llama", "gemma", "mistral") else "bytes")
        config = getattr(transformers, config_name)(**{**sizes, "vocab_size": max(VOCABULARY, len(tokenizer))})
        model, task = transformers.AutoModelForCausalLM.from_config(config), "text-generation-with-past"
    else:
        config_name, sizes, auto, task = ENCODERS[name]
        config = getattr(transformers, config_name)(**sizes)
        model = getattr(transformers, auto).from_config(config)
        tokenizer = train_tokenizer("words")
    # Weights of the usual size give nearly equal scores for all tokens, which rounding would decide.
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(4.0)
    model.eval()
    model.save_pretrained(target / "torch")
    tokenizer.save_pretrained(target / "torch")
    # Slow to import, and not needed for answers.
    from optimum.exporters.onnx import main_export

    main_export(str(target / "torch"), str(target), task=task, do_validation=False)
    if name == "bert-mean":
        (target / "1_Pooling").mkdir()
        (target / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True}))
        modules = ["Transformer", "Pooling", "Normalize"]
        entries = [{"idx": i, "name": str(i), "path": ["", "1_Pooling", "2_Normalize"][i], "type": f"sentence_transformers.models.{m}"}
                   for i, m in enumerate(modules)]
        (target / "modules.json").write_text(json.dumps(entries))
    print(name, sorted(path.name for path in target.iterdir()), flush=True)


def main():
    root = Path(sys.argv[1])
    for name in sys.argv[2:] or [*DECODERS, *ENCODERS]:
        try:
            export(root, name)
        except Exception as error:  # One exporter that fails leaves the others.
            print(f"{name}: not exported: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
