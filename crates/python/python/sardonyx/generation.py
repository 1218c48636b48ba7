"""Text generation, embeddings and classification with directories as they lie on hubs.

:class:`Generator` continues texts::

    generator = sardonyx.generation.Generator("Qwen3-0.6B-ONNX")
    print(generator.generate("The capital of France is", max_new_tokens=20).text)
    for piece in generator.stream([{"role": "user", "content": "What is ONNX?"}]):
        print(piece.text, end="", flush=True)

:class:`Embedder` converts texts to vectors, and :class:`Classifier` gives labels, scores of documents for a query, or spans.
A directory has an ONNX file, ``config.json``, ``tokenizer.json`` and often a chat template. Nothing is downloaded.
"""

from sardonyx._core.generation import Classifier, Embedder, Generation, Generator, Piece, TextStream

__all__ = ["Classifier", "Embedder", "Generation", "Generator", "Piece", "TextStream"]
