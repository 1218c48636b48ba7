"""Language models and encoders of directories."""

import threading
from pathlib import Path

import pytest
import sardonyx
from sardonyx.generation import Classifier, Embedder, Generator

DIRECTORIES = Path(__file__).parents[3] / "tests" / "generate"
PROMPT = "The weight of a module"


@pytest.fixture
def generator():
    return Generator(DIRECTORIES / "tiny-gpt2")


def test_pieces_are_the_answer(generator):
    options = {"max_new_tokens": 8, "do_sample": False, "eos_token_id": None}
    answer = generator.generate(PROMPT, logprobs=2, **options)
    pieces = list(generator.stream(PROMPT, **options))
    assert answer.text == str(answer) == "".join(piece.text for piece in pieces)
    assert answer.tokens == [piece.token for piece in pieces]
    assert pieces[-1].finish_reason == answer.finish_reason == "length"
    assert answer.prompt_tokens == len(generator.encode(PROMPT))
    assert [top[0][0] for top in answer.top_logprobs] == answer.tokens
    assert [top[0][1] for top in answer.top_logprobs] == answer.logprobs


def test_prompts_have_many_forms(generator):
    options = {"max_new_tokens": 4, "do_sample": False, "eos_token_id": []}
    tokens = generator.encode(PROMPT)
    one = generator.generate(PROMPT, **options)
    assert generator.generate(tokens, **options).tokens == one.tokens
    assert [answer.tokens for answer in generator.generate([PROMPT, PROMPT], **options)] == [one.tokens] * 2
    assert [answer.tokens for answer in generator.generate([tokens], **options)] == [one.tokens]
    messages = [{"role": "user", "content": "Hi"}]
    text = generator.apply_chat_template(messages)
    assert text == "<|user|>\nHi</s>\n<|assistant|>\n"
    encoded = generator.encode(text, add_special_tokens=False)
    assert generator.generate(messages, **options).tokens == generator.generate(encoded, **options).tokens
    with pytest.raises(TypeError, match="prompt is not a string"):
        generator.generate(3.5)


def test_draws_follow_seeds(generator):
    options = {"max_new_tokens": 12, "do_sample": True, "temperature": 1.5, "top_k": 0}
    texts = [generator.generate(PROMPT, seed=seed, **options).tokens for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


def test_probabilities_sum_to_one(generator):
    found = generator.next_probabilities(PROMPT, do_sample=True, top_k=5)
    assert found.shape == (300,)
    assert (found > 0).sum() == 5
    assert abs(float(found.sum()) - 1) < 1e-5


def test_wrong_options_are_errors(generator):
    with pytest.raises(TypeError, match="unexpected option 'temprature'"):
        generator.generate(PROMPT, temprature=1)
    with pytest.raises(sardonyx.Error, match="`temperature`: expected a number greater than 0") as caught:
        generator.generate(PROMPT, do_sample=True, temperature=0)
    assert caught.value.code == "argument"
    with pytest.raises(sardonyx.Error, match="context is 'x'"):
        generator.generate(PROMPT, context="x")
    with pytest.raises(sardonyx.Error, match="does not exist"):
        Generator(DIRECTORIES / "absent")


def test_a_flag_ends_an_answer(generator):
    flag = sardonyx.StopFlag()
    stream = generator.stream(PROMPT, stop=flag, eos_token_id=[], max_new_tokens=50)
    next(stream)
    flag.stop()
    assert next(stream).finish_reason == "stopped"
    with pytest.raises(StopIteration):
        next(stream)
    stream = generator.stream(PROMPT)
    stream.close()
    assert list(stream) == []


def test_threads_share_a_generator(generator):
    options = {"max_new_tokens": 6, "do_sample": False, "reuse_prefix": False}
    expected = generator.generate(PROMPT, **options).tokens
    found = []
    threads = [threading.Thread(target=lambda: found.append(generator.generate(PROMPT, **options).tokens)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_a_tokenizer_is_a_path():
    path = DIRECTORIES / "tiny-gpt2" / "tokenizer.json"
    generator = Generator(DIRECTORIES / "tiny-gpt2", tokenizer=path)
    assert generator.decode(generator.encode(PROMPT)) == PROMPT
    with pytest.raises(TypeError, match="tokenizer is not"):
        Generator(DIRECTORIES / "tiny-gpt2", tokenizer=3)


def test_encoders_give_vectors_and_labels():
    embedder = Embedder(DIRECTORIES / "tiny-bert")
    vectors = embedder.embed(["one", "two words"], normalize=True)
    assert vectors.shape == (2, 2)
    assert abs(float((vectors[0] ** 2).sum()) - 1) < 1e-5
    assert embedder.embed("one").shape == (2,)
    assert embedder.max_length == 64
    classifier = Classifier(DIRECTORIES / "tiny-bert")
    labels = classifier.classify("one")[0]
    assert {label["label"] for label in labels} == {"yes", "no"}
    scores = classifier.rerank("one", ["two", "three"])
    assert scores.shape == (2,)
    with pytest.raises(sardonyx.Error, match="labels texts, not tokens"):
        classifier.find_spans("one")
