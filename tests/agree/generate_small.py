"""Computes the answers beside the small models of `tests/generate`, without torch.

Usage: generate_small.py. Tokens of greedy answers are those of ONNX Runtime, which reads the whole text at each step; options
are computed in numpy; conversations are rendered by Jinja2; texts are converted by the package tokenizers. So each answer has
another source than the code that it tests, but for tokenizers, whose crate is the same.
"""

import json
import random
from pathlib import Path

import jinja2
import jinja2.sandbox
import numpy as np
import onnxruntime
from tokenizers import Tokenizer

ROOT = Path(__file__).parents[1] / "generate"
DECODERS, ENCODERS = ["tiny-gpt2", "tiny-qwen2"], ["tiny-bert"]
ENDS = [1, 44, 45]
OPTIONS = [
    {}, {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2},
    {"bad_words_ids": [[40], [50, 51], [65, 66, 67]]}, {"min_new_tokens": 3}, {"suppress_tokens": [60, 61, 62]},
    {"sequence_bias": [[[70], 3.0], [[71], -2.0]]},
]
TEXTS = [
    "naïve café — 東京の天気は晴れ", "Привет, мир! 👋🏽 🇩🇪", "שלום עולם", "नमस्ते दुनिया", "a\u0301 e\u0308 \u200b x",
    "\ttabs\tand  spaces ", "1234567890 + 3.14159e-10", "مرحبا بالعالم", "👩‍👩‍👧‍👦 family", "한국어 문장입니다.",
    "import torch", "def forward(self, input):", "The input has the shape (N, C).", "x = y + 1  # a comment", "", "a",
]


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def next_scores(session, tokens):
    """Returns the scores of the token after `tokens`, with an empty past."""
    feed = {}
    for port in session.get_inputs():
        if port.name == "input_ids":
            feed[port.name] = np.array([tokens], np.int64)
        elif port.name == "attention_mask":
            feed[port.name] = np.ones((1, len(tokens)), np.int64)
        elif port.name == "position_ids":
            feed[port.name] = np.arange(len(tokens), dtype=np.int64)[None]
        else:
            feed[port.name] = np.zeros([1, port.shape[1], 0, port.shape[3]], np.float32)
    return session.run(["logits"], feed)[0][0, -1].astype(np.float64)


def answer_greedily(session, rng):
    answers = []
    for _ in range(8):
        prompt = [rng.randrange(9, 300) for _ in range(rng.randint(1, 30))]
        tokens, gaps = [], []
        while len(tokens) < 24 and not (tokens and tokens[-1] in ENDS):
            scores = next_scores(session, prompt + tokens)
            second, first = np.sort(scores)[-2:]
            gaps.append(round(float(first - second), 5))
            tokens.append(int(scores.argmax()))
        answers.append({"prompt": prompt, "tokens": tokens, "gaps": gaps})
    return answers


def change_scores(scores, options, prompt):
    """Applies options in the order in which transformers does."""
    for ids, bias in options.get("sequence_bias", []):
        scores[ids[0]] += bias
    for token in set(prompt) if "repetition_penalty" in options else ():
        factor = options["repetition_penalty"]
        scores[token] = scores[token] * factor if scores[token] < 0 else scores[token] / factor
    if "no_repeat_ngram_size" in options:
        for before, token in zip(prompt, prompt[1:], strict=False):
            if before == prompt[-1]:
                scores[token] = -np.inf
    for words in options.get("bad_words_ids", []):
        if words[:-1] == prompt[len(prompt) - len(words) + 1:]:
            scores[words[-1]] = -np.inf
    if "min_new_tokens" in options:
        scores[ENDS] = -np.inf
    scores[options.get("suppress_tokens", [])] = -np.inf
    scores /= options.get("temperature", 1.0)
    if "top_k" in options:
        scores[scores < np.sort(scores)[-options["top_k"]]] = -np.inf
    if "top_p" in options:
        probabilities = softmax(scores)
        order = np.argsort(-probabilities)
        kept = int((np.cumsum(probabilities[order]) < options["top_p"]).sum()) + 1
        scores[order[kept:]] = -np.inf
    if "min_p" in options:
        probabilities = softmax(scores)
        scores[probabilities < options["min_p"] * probabilities.max()] = -np.inf
    return softmax(scores)


def answer_decoder(directory, session, tokenizer):
    prompt = [40, 41, 42, 43, 40, 41, 50, 65, 66, 40, 41]
    scores = next_scores(session, prompt)
    options = [{"options": o, "probabilities": [round(float(p), 8) for p in change_scores(scores.copy(), o, prompt)]} for o in OPTIONS]
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string((directory / "chat_template.jinja").read_text())
    chats = []
    for index in range(len(TEXTS)):
        roles = ("user", "assistant", "user")[: index % 3 + 1]
        messages = [{"role": role, "content": TEXTS[(index + i) % len(TEXTS)]} for i, role in enumerate(roles)]
        chats.append({"messages": messages, "text": template.render(messages=messages, add_generation_prompt=True, eos_token="</s>")})
    encoded = [tokenizer.encode(text).ids for text in TEXTS]
    return {
        "greedy": answer_greedily(session, random.Random(3)),
        "options": {"prompt": prompt, "ends": ENDS, "answers": options},
        "texts": [{"text": text, "ids": ids, "decoded": tokenizer.decode(ids)} for text, ids in zip(TEXTS, encoded, strict=True)],
        "chats": chats,
    }


def answer_encoder(session, tokenizer):
    texts = [{"text": text, "ids": tokenizer.encode(text).ids} for text in TEXTS]
    tokenizer.enable_truncation(64)
    scores = []
    for text in TEXTS:
        found = tokenizer.encode(text)
        columns = {"input_ids": found.ids, "attention_mask": found.attention_mask, "token_type_ids": found.type_ids}
        logits = session.run(["logits"], {name: np.array([column], np.int64) for name, column in columns.items()})[0][0]
        scores.append([round(float(p), 8) for p in softmax(logits.astype(np.float64))])
    pairs = [[text, ""] for text in TEXTS]
    return {"texts": texts, "scores": scores, "pairs": pairs}


def main():
    for name in [*DECODERS, *ENCODERS]:
        directory = ROOT / name
        session = onnxruntime.InferenceSession(directory / "model.onnx", providers=["CPUExecutionProvider"])
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.no_truncation()
        is_decoder = name in DECODERS
        answers = answer_decoder(directory, session, tokenizer) if is_decoder else answer_encoder(session, tokenizer)
        lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in answers.items())
        (directory / "answers.json").write_text("{" + lines + "}\n")
        print(name)


if __name__ == "__main__":
    main()
