"""Runs a program with Sardonyx in place of onnxruntime: ``python -m sardonyx.ort program.py``."""

from sardonyx._shims.onnxruntime.program import main

if __name__ == "__main__":
    main()
