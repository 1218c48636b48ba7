"""Computes what transformers and sentence-transformers answer on the directories of `generate_export.py`.

Usage: generate_answers.py DIRECTORY [NAME...]. Writes `answers.json` into each directory: prompts with the tokens of greedy answers, the
probabilities of the next token for options alone and in pairs, texts with their tokens, conversations with the text of the
template, and for encoders vectors, labels and scores.
"""

import itertools
import json
import os
import random
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch

torch.set_num_threads(1)
import transformers
from transformers import GenerationConfig

from generate_export import DECODERS, ENCODERS, texts

# Numbers of prompts and texts; those of models of the repository.
PROMPTS, TINY_PROMPTS = 200, 8
TEXTS, TINY_TEXTS = 1000, 20
OPTIONS = [
    {"temperature": 0.7}, {"top_k": 5}, {"top_p": 0.8}, {"min_p": 0.1}, {"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 2},
    {"bad_words_ids": [[40], [50, 51], [65, 66, 67]]}, {"min_new_tokens": 3}, {"suppress_tokens": [60, 61, 62]},
    {"sequence_bias": [[[70], 3.0], [[71], -2.0]]},
]
# As many ends as make their ban visible.
ENDS = [1, 44, 45]


def answer_options(model, prompt, is_tiny):
    """Returns the probabilities after transformers' own processors, for each option and each pair."""
    answers = []
    pairs = [] if is_tiny else list(itertools.combinations(OPTIONS, 2))
    for option in [{}, *OPTIONS, *({**a, **b} for a, b in pairs)]:
        config = GenerationConfig(do_sample=True, **{"top_k": 0, **option}, max_new_tokens=1, eos_token_id=ENDS, pad_token_id=2,
                                  output_scores=True, return_dict_in_generate=True)
        ids = torch.tensor([prompt])
        with torch.no_grad():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        answers.append({"options": option, "probabilities": [round(p, 8) for p in torch.softmax(found.scores[0][0].double(), -1).tolist()]})
    return answers


def answer_decoder(directory):
    is_tiny = directory.name.startswith("tiny")
    prompts = TINY_PROMPTS if is_tiny else PROMPTS
    model = transformers.AutoModelForCausalLM.from_pretrained(directory / "torch").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "torch")
    lines = texts(TINY_TEXTS if is_tiny else TEXTS)
    rng = random.Random(3)
    greedy = []
    for index in range(prompts):
        prompt = tokenizer(lines[index])["input_ids"][: rng.randint(1, 40)]
        ids = torch.tensor([prompt])
        config = GenerationConfig(do_sample=False, max_new_tokens=24, eos_token_id=ENDS, pad_token_id=2, output_logits=True,
                                  return_dict_in_generate=True)
        with torch.no_grad():
            found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        gaps = []
        for logits in found.logits:
            best = torch.topk(logits[0], 2).values
            gaps.append(round(float(best[0] - best[1]), 5))
        greedy.append({"prompt": prompt, "tokens": found.sequences[0][len(prompt):].tolist(), "gaps": gaps})
    repeated = [40, 41, 42, 43, 40, 41, 50, 65, 66, 40, 41]
    messages = []
    for index in range(len(lines)):
        count = index % 3 + 1
        messages.append([{"role": ("user", "assistant")[i % 2], "content": lines[(index + i) % len(lines)]} for i in range(count)])
    return {
        "greedy": greedy,
        "options": {"prompt": repeated, "ends": ENDS, "answers": answer_options(model, repeated, is_tiny)},
        "texts": [{"text": line, "ids": tokenizer(line)["input_ids"], "decoded": tokenizer.decode(
            tokenizer(line)["input_ids"], skip_special_tokens=True, clean_up_tokenization_spaces=False)} for line in lines],
        "chats": [{"messages": chat, "text": tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)}
                  for chat in messages],
    }


def answer_encoder(directory, name):
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory / "torch")
    auto = getattr(transformers, ENCODERS[name][2])
    model = auto.from_pretrained(directory / "torch").eval()
    is_tiny = name.startswith("tiny")
    lines, count = (texts(TINY_TEXTS), TINY_TEXTS - 1) if is_tiny else (texts(TEXTS), 200)
    answers = {"texts": [{"text": line, "ids": tokenizer(line, truncation=True)["input_ids"]} for line in lines]}
    if name == "bert-mean":
        from sentence_transformers import SentenceTransformer, models

        word = models.Transformer(str(directory / "torch"), max_seq_length=64)
        modules = [word, models.Pooling(64, pooling_mode="mean"), models.Normalize()]
        answers["vectors"] = SentenceTransformer(modules=modules, device="cpu").encode(lines[:200]).tolist()
    elif name == "bert-tokens":
        run = transformers.pipeline("token-classification", model=model, tokenizer=tokenizer, aggregation_strategy="simple")
        answers["spans"] = [[{"label": s["entity_group"], "score": float(s["score"]), "start": s["start"], "end": s["end"]}
                             for s in run(line)] for line in lines[:200]]
    else:
        pairs = [(lines[i], lines[i + 1]) for i in range(count)]
        with torch.no_grad():
            if name == "bert-ranks":
                found = [torch.sigmoid(model(**tokenizer(a, b, truncation=True, return_tensors="pt")).logits)[0] for a, b in pairs]
            else:
                found = [torch.softmax(model(**tokenizer(a, truncation=True, return_tensors="pt")).logits, -1)[0] for a, _ in pairs]
        answers["scores"] = [scores.tolist() for scores in found]
        answers["pairs"] = pairs
    return answers


def main():
    root = Path(sys.argv[1])
    for name in sys.argv[2:] or [*DECODERS, *ENCODERS]:
        directory = root / name
        if not (directory / "model.onnx").exists():
            continue
        answers = answer_decoder(directory) if name in DECODERS else answer_encoder(directory, name)
        (directory / "answers.json").write_text(json.dumps(answers, ensure_ascii=False))
        print(name, flush=True)


if __name__ == "__main__":
    main()
