//! `.safetensors`: a JSON header, then the bytes of all tensors.
