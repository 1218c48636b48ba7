"""Packages of PyPI that import onnxruntime, run as their users run them, with Sardonyx in its place.

    python programs.py --onnxruntime DIRECTORY [NAME...]

This Python has the packages and the wheel of Sardonyx, and no onnxruntime; DIRECTORY has onnxruntime alone. Each program runs in
two processes: one of `python -m sardonyx.ort`, and one with DIRECTORY on its path. Prints a row for each: what was run, and
the largest difference of what both gave. Fails if they differ.

Where a package downloads its models, a small one of the same inputs and outputs takes their place (small_models.py).
"""

import argparse
import importlib.metadata
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import wave

import numpy as np

HERE = pathlib.Path(__file__).parent
TEXT = "Hello World 42"
SENTENCES = [
    "a model runs in another engine",
    "the answers are the same",
    "one",
    "words that are not in the table become unknown",
    "the engine runs the model again and again",
]
PROGRAMS = {}
#: Seconds for a program.
LIMIT = 300
#: One step of a color or of audio, for results that packages round to these.
STEPS = {"picture": 1.01 / 255, "mask": 1.01 / 255, "wave": 1.01 / 32767}


def program(package, what):
    """Registers a function from a directory to named results."""

    def add(function):
        PROGRAMS[function.__name__.replace("_", "-")] = (package, what, function)
        return function

    return add


def picture(width=320, height=240):
    """Colors that vary, and some edges."""
    y, x = np.mgrid[:height, :width]
    image = np.stack([x * 255 // width, y * 255 // height, (x * y // 37) % 256], -1).astype(np.uint8)
    image[60:150, 80:200] = [200, 60, 30]
    image[100:120, 100:180] = [20, 220, 120]
    return image


def written(text, width=420, height=90, size=48):
    """Black text on white."""
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", (width, height), "white")
    ImageDraw.Draw(image).text((20, 15), text, "black", ImageFont.load_default(size))
    return image


@program("rapidocr", "an image of text, with the three models in the package")
def rapidocr(_work):
    from rapidocr import RapidOCR

    result = RapidOCR(params={"Global.log_level": "error"})(np.asarray(written(TEXT)))
    assert " ".join(result.txts) == TEXT, result.txts
    return {"texts": result.txts, "scores": result.scores, "boxes": result.boxes}


@program("ddddocr", "two images of text and a picture, with the three models in the package")
def ddddocr(_work):
    from ddddocr import DdddOcr

    readers = {"new": DdddOcr(show_ad=False, beta=True), "old": DdddOcr(show_ad=False)}
    results = {}
    for name, reader in readers.items():
        results[name] = [reader.classification(written(text, 160, 60, 36)) for text in ("a7Kx", "3mQp")]
    results["boxes"] = DdddOcr(ocr=False, det=True, show_ad=False).detection(png(written(TEXT)))
    assert results["new"][0].lower() == "a7kx", results
    return results


def png(image):
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@program("fastembed", "embeddings of sentences in this process and in two workers, with a small model")
def fastembed(work):
    import small_models
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = sorted(set(" ".join(SENTENCES[:3]).split()))
    vocabulary = {word: index for index, word in enumerate(["[PAD]", "[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(work / "tokenizer.json"))
    (work / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (work / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 64, "pad_token": "[PAD]"}))
    (work / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
    small_models.encoder(work / "model.onnx", len(vocabulary), 32)
    TextEmbedding.add_custom_model(
        "own/small", PoolingType.MEAN, True, ModelSource(hf="own/small"), dim=32, model_file="model.onnx"
    )
    model = TextEmbedding("own/small", specific_model_path=str(work), threads=1)
    here = np.array(list(model.embed(SENTENCES, batch_size=2)))
    workers = np.array(list(model.embed(SENTENCES, batch_size=2, parallel=2)))
    assert np.allclose(here, workers, atol=1e-6)
    return {"here": here, "in workers": workers}


@program("insightface", "faces of a picture: boxes, points, features, gender and age, with four small models")
def insightface(work):
    import pickle

    import small_models
    from insightface.app import FaceAnalysis

    small_models.faces(work)
    app = FaceAnalysis(name=str(work), root=str(work), providers=["CPUExecutionProvider"])
    app.prepare(ctx_id=-1, det_thresh=0.5, det_size=(160, 160))
    found = app.get(picture()[:, :, ::-1], max_num=4)
    assert len(app.models) == 4 and len(found) == 4, (app.models, len(found))
    copy = pickle.loads(pickle.dumps(app.models["recognition"].session))
    x = np.ones((2, 3, 112, 112), np.float32)
    results = {"of a pickled session": copy.run(None, {"input.1": x})[0]}
    for key in ("bbox", "kps", "det_score", "embedding", "landmark_2d_106", "gender", "age"):
        results[key] = np.array([face[key] for face in found])
    return results


@program("piper-tts", "two sentences to a WAV file, with its phonemizer and a small voice")
def piper_tts(work):
    import small_models
    from piper import PiperVoice, SynthesisConfig
    from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP as ids

    model = work / "voice.onnx"
    small_models.piper_voice(model, 1 + max(number for numbers in ids.values() for number in numbers))
    config = {
        "audio": {"sample_rate": 22050},
        "espeak": {"voice": "en-us"},
        "num_symbols": len(ids),
        "num_speakers": 1,
        "phoneme_id_map": ids,
    }
    (work / "voice.onnx.json").write_text(json.dumps(config))
    voice = PiperVoice.load(model)
    options = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0, length_scale=1.3)
    with wave.open(str(work / "out.wav"), "wb") as file:
        voice.synthesize_wav("This is a test. And another one!", file, options)
    with wave.open(str(work / "out.wav")) as file:
        # Of 32,767 steps.
        samples = np.frombuffer(file.readframes(file.getnframes()), np.int16) / np.float32(32767)
    chunks = list(voice.synthesize("Once more.", options))
    return {"wave": samples, "chunk": chunks[0].audio_float_array, "phonemes": "".join(chunks[0].phonemes)}


@program("kokoro-onnx", "a sentence to samples and times of phonemes, with its phonemizer and a small model")
def kokoro_onnx(work):
    import small_models
    from kokoro_onnx import Kokoro
    from kokoro_onnx.config import DEFAULT_VOCAB

    small_models.kokoro(work / "kokoro.onnx", 1 + max(DEFAULT_VOCAB.values()))
    styles = np.random.default_rng(1).standard_normal((510, 1, 256)).astype(np.float32)
    np.savez(work / "voices.npz", own=styles)
    kokoro = Kokoro(str(work / "kokoro.onnx"), str(work / "voices.npz"))
    samples, rate, spoken = kokoro.create_timed("Kokoro speaks, with a small model.", "own", speed=1.2, trim=False)
    assert rate == 24000 and len(spoken) > 10
    return {"samples": samples, "times": [(one.start, one.end) for one in spoken]}


@program("rembg", "a picture without its background, with a small model")
def rembg(work):
    os.environ |= {"U2NET_HOME": str(work), "MODEL_CHECKSUM_DISABLED": "1"}
    import rembg
    import small_models

    small_models.background(work / "u2netp.onnx")
    session = rembg.new_session("u2netp")
    cut = rembg.remove(picture(), session=session)
    mask = rembg.remove(picture(), session=session, only_mask=True, post_process_mask=True)
    # Of 255 steps.
    return {"picture": cut / np.float32(255), "mask": mask / np.float32(255)}


POOLS = """
import os
import numpy as np
import onnxruntime

def session(path):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

def infer(path, seed):
    ids = np.random.default_rng(seed).integers(0, 9, (1, 5))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return os.getpid(), session(path).run(None, feeds)[0]
"""


@program("multiprocessing", "sessions in a pool with spawn and in an executor with forkserver, two workers each")
def pools(work):
    import concurrent.futures
    import multiprocessing

    import small_models

    small_models.encoder(work / "model.onnx", 9, 16)
    (work / "work_of_pools.py").write_text(POOLS)
    sys.path.insert(0, str(work))
    import work_of_pools

    calls = [(str(work / "model.onnx"), seed) for seed in range(8)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        spawned = pool.starmap(work_of_pools.infer, calls, chunksize=1)
    context = multiprocessing.get_context("forkserver")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
        forked = list(pool.map(work_of_pools.infer, *zip(*calls)))
    assert os.getpid() not in {number for number, _ in spawned + forked}
    return {"spawn": [y for _, y in spawned], "forkserver": [y for _, y in forked]}


SERVICE = """
import json
import os
import work_of_pools

async def app(scope, receive, send):
    if scope["type"] != "http":
        return
    seed = int(scope["path"].strip("/"))
    number, y = work_of_pools.infer(os.environ["SERVICE_MODEL"], seed)
    body = json.dumps([number, y.tolist()]).encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})
"""


@program("uvicorn", "a service with a session in two worker processes")
def uvicorn(work):
    import socket
    import time
    import urllib.request

    import onnxruntime
    import small_models

    small_models.encoder(work / "model.onnx", 9, 16)
    (work / "work_of_pools.py").write_text(POOLS)
    (work / "service.py").write_text(SERVICE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = ["-m", "sardonyx.ort"] if hasattr(onnxruntime, "__sardonyx__") else []
    words = [*start, "-m", "uvicorn", "service:app", "--workers", "2", "--port", str(port), "--log-level", "warning"]
    environment = {**os.environ, "SERVICE_MODEL": str(work / "model.onnx")}
    environment.pop("SARDONYX_AS_ONNXRUNTIME", None)
    service = subprocess.Popen([sys.executable, *words], cwd=work, env=environment)

    def answer(seed):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{seed}", timeout=30) as reply:
            return json.load(reply)

    try:
        workers, results, end = set(), [], time.monotonic() + 60
        # Until both workers have answered.
        while len(results) < 8 or len(workers) < 2:
            assert time.monotonic() < end and service.poll() is None, workers
            try:
                number, y = answer(len(results) % 8)
            except OSError:
                time.sleep(0.2)
                continue
            workers.add(number)
            results.append(y)
        return {"answers": np.float32(results[:8])}
    finally:
        service.terminate()
        service.wait(30)


@program("torch", "a DataLoader whose two workers, spawned, run sessions")
def data_loader(work):
    import small_models
    import torch

    small_models.encoder(work / "model.onnx", 9, 16)
    (work / "work_of_pools.py").write_text(POOLS + LOADER)
    sys.path.insert(0, str(work))
    import work_of_pools

    data = work_of_pools.Embedded(str(work / "model.onnx"))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="spawn")
    return {"batches": [batch.numpy() for batch in loader]}


LOADER = """
class Embedded:
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return infer(self.path, index)[1][0]
"""


@program("ultralytics", "objects in a picture, by a network of random weights that it exported itself")
def ultralytics(work):
    os.environ |= {"YOLO_CONFIG_DIR": str(work), "YOLO_OFFLINE": "true", "YOLO_AUTOINSTALL": "false"}
    import torch
    from ultralytics import YOLO

    torch.manual_seed(1)
    network = YOLO("yolo11n.yaml")
    network.save(str(work / "net.pt"))
    path = YOLO(str(work / "net.pt")).export(format="onnx", imgsz=160, dynamic=True, simplify=False, opset=17)
    results = {}
    for size in (160, 96):
        (result,) = YOLO(path, task="detect").predict(picture(), imgsz=size, conf=0.0, max_det=20, verbose=False)
        results[str(size)] = result.boxes.data.numpy()
    return results


@program("optimum-onnx", "embeddings of a BERT of two layers with random weights that it exported itself")
def optimum(work):
    import torch
    from optimum.onnxruntime import ORTModelForFeatureExtraction
    from transformers import BertConfig, BertModel

    torch.manual_seed(1)
    sizes = dict(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    model = BertModel(BertConfig(**sizes)).eval()
    model.save_pretrained(work / "torch")
    exported = ORTModelForFeatureExtraction.from_pretrained(work / "torch", export=True)
    exported.save_pretrained(work / "onnx")
    again = ORTModelForFeatureExtraction.from_pretrained(work / "onnx")
    ids = torch.arange(3, 21).reshape(2, 9)
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    got = again(input_ids=ids, attention_mask=mask).last_hidden_state.numpy()
    with torch.no_grad():
        wanted = model(input_ids=ids, attention_mask=mask).last_hidden_state.numpy()
    assert np.abs(got - wanted).max() < 1e-4
    return {"hidden": got}


def run(name, out):
    """Runs a program here. Writes its results, and prints on what it ran."""
    import onnxruntime

    with tempfile.TemporaryDirectory() as directory:
        results = PROGRAMS[name][2](pathlib.Path(directory))
    np.savez(out, **{key: np.array(value) for key, value in results.items()})
    print(json.dumps([onnxruntime.__version__, getattr(onnxruntime, "__sardonyx__", False)]))


def started(name, out, onnxruntime):
    """Runs a program in a process. Gives what goes wrong, or None."""
    paths = [str(HERE), *([str(onnxruntime)] if onnxruntime else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "2"}
    start = [] if onnxruntime else ["-m", "sardonyx.ort"]
    command = [sys.executable, *start, str(HERE / "programs.py"), "--run", name, str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT, cwd=out.parent)
    if done.returncode:
        return done.stderr[-3000:]
    _version, is_ours = json.loads(done.stdout.splitlines()[-1])
    return None if is_ours == (onnxruntime is None) else "the program ran on the other side"


def compare(wanted, got):
    """The largest difference as a part of the largest magnitude, and what is wrong."""
    if set(wanted.files) != set(got.files):
        return 0.0, f"results {got.files} instead of {wanted.files}"
    worst = 0.0
    for key in wanted.files:
        one, other = wanted[key], got[key]
        if one.shape != other.shape:
            return worst, f"{key}: {other.shape} instead of {one.shape}"
        if one.dtype.kind not in "fi":
            if (one != other).any():
                return worst, f"{key}: {other} instead of {one}"
            continue
        difference = np.abs(one.astype(float) - other).max(initial=0) / max(np.abs(one).max(initial=0), 1e-9)
        worst = max(worst, difference)
        if difference > max(1e-4, STEPS.get(key, 0)):
            return worst, f"{key}: off by {difference:.1e} of the largest magnitude"
    return worst, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--onnxruntime", type=pathlib.Path)
    parser.add_argument("--run", nargs=2, metavar=("NAME", "OUT"))
    args = parser.parse_args()
    if args.run:
        return run(*args.run)
    if importlib.util.find_spec("onnxruntime"):
        sys.exit("this Python has onnxruntime")
    unknown = set(args.names) - set(PROGRAMS)
    if unknown:
        sys.exit(f"no such programs: {', '.join(sorted(unknown))}; there are: {', '.join(PROGRAMS)}")
    print("| package | what was run | largest difference |\n| --- | --- | --- |")
    problems = []
    with tempfile.TemporaryDirectory() as directory:
        for name in args.names or PROGRAMS:
            package, what, _ = PROGRAMS[name]
            ours, theirs = (pathlib.Path(directory) / f"{name}-{side}.npz" for side in ("ours", "theirs"))
            wrong = None
            for side, out, path in (("Sardonyx", ours, None), ("onnxruntime", theirs, args.onnxruntime.resolve())):
                failed = started(name, out, path)
                wrong = wrong or (failed and f"on {side}: {failed}")
            worst = None
            if not wrong:
                with np.load(theirs) as wanted, np.load(ours) as got:
                    worst, wrong = compare(wanted, got)
            cell = "DIFFERS" if wrong else f"{worst:.0e}"
            print(f"| {package} {version(package)} | {what} | {cell} |", flush=True)
            problems += [f"{name}: {wrong}"] * bool(wrong)
    print(*problems, sep="\n")
    print(f"{len(args.names or PROGRAMS) - len(problems)} passed, {len(problems)} failed")
    sys.exit(1 if problems else 0)


def version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return f"of Python {sys.version.split()[0]}"


if __name__ == "__main__":
    main()
