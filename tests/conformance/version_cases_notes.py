"""What `version_cases.py` knows about oracles and about versions that have no case."""

import re


def versions(**known):
    return {("", name, since) for name, found in known.items() for since in found}


# Names of cases and the oracle that follows the text of the standard where two give different values.
DECIDED = {
    # The indices of MaxUnpool count within the tensor that MaxPool saw, whose shape is the one inferred from the
    # attributes. onnxruntime counts within the shape of the third input.
    "ai.onnx.MaxUnpool-9-maxunpool_export_with_output_shape": "reference",
    "ai.onnx.MaxUnpool-11-maxunpool_export_with_output_shape": "reference",
    "ai.onnx.MaxUnpool-22-maxunpool_export_with_output_shape": "reference",
    # onnxruntime runs the function body of version 15, which compares the wrong way round: it draws 1 with the
    # probability of 0. The text says that an input of 1 gives 1.
    "ai.onnx.Bernoulli-15-certain": "numpy",
    "ai.onnx.Bernoulli-15-certain-bool": "numpy",
    # Version 11 turned round which end an odd place is cut off from; onnxruntime does at version 1 what 11 says.
    "ai.onnx.ConvTranspose-1-output-shape": "numpy",
    # Indices must not be negative, and others than those within the range have no element that is on. Counting from the
    # end came with version 11.
    "ai.onnx.OneHot-9-negative-index": "numpy",
    # The output has one dimension in the text; onnxruntime gives a row of a matrix.
    "ai.onnx.ml.DictVectorizer-1-strings": "numpy",
    "ai.onnx.ml.DictVectorizer-1-int64": "numpy",
    # Weights belong to the n-grams of the pool in their order; the evaluator takes them by the place in the output.
    "ai.onnx.TfIdfVectorizer-9-idf": "onnxruntime",
}

# Versions for which the evaluator of the onnx package runs a newer meaning, or is wrong.
NEWER_IN_REFERENCE = versions(
    # Trains wherever `momentum` has a value, which it always has.
    BatchNormalization=(1, 6, 7, 9),
    # Take one axis and not all from there on.
    Softmax=(1, 11),
    LogSoftmax=(1, 11),
    Hardmax=(1, 11),
    # Stretch operands by the rule of numpy, whatever `broadcast` and `axis` say.
    **{name: (1, 6) for name in ("Add", "Sub", "Mul", "Div")},
    **{name: (1,) for name in ("Pow", "Equal", "Greater", "Less", "And", "Or", "Xor")},
    # Moves coordinates by half a pixel.
    RoiAlign=(10,),
    Resize=(10,),
    Upsample=(1, 7, 9),
)

# Versions to which no newer case is a model: other attributes, or the same ones with another meaning.
OTHERWISE = versions(
    PRelu=(1, 6),
    Gemm=(1, 6),
    # The output of all steps is there only with `output_sequence`.
    RNN=(1,),
    GRU=(1, 3),
    LSTM=(1,),
    Dropout=(1, 6),
    BatchNormalization=(1, 6, 7),
)

# Newer cases that the checker accepts at an old version whose text does not allow them.
NOT_OLDER = re.compile(
    # `fmod` must be 1 for floats.
    r"^ai\.onnx\.Mod-1[03]-mod_float\w*fmod_0"
    # Indices must not be negative; onnxruntime counts them from the end, as version 11 says.
    r"|^ai\.onnx\.OneHot-9-onehot_(negative|out_of_range)_indices"
    # The modes have other names.
    r"|^ai\.onnx\.GridSample-16-"
)

# Cases whose outputs nobody can foretell.
RANDOM = re.compile(r"^bernoulli|^training_dropout(?!_zero_ratio)")

# Versions that have no case in their new types: the function of Mish adds 1 to what bfloat16 then loses beside it, so
# that the operator and its function differ by more than rounding.
NOT_NARROW = versions(Mish=(22,))

# Versions without a case.
REASONS = {}
