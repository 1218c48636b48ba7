"""Sardonyx as the core of an installed onnx package. Each test is a process of its own."""

import subprocess
import sys
import textwrap

START = """
    import sys
    import sardonyx
    from sardonyx import _core

    NAME = "onnx.onnx_cpp2py_export"

    def is_ours():
        import onnx, onnx.defs, onnx.checker, onnx.parser, onnx.shape_inference
        import onnx.onnx_cpp2py_export.checker as checker
        places = [
            sys.modules[NAME] is _core,
            onnx.onnx_cpp2py_export is _core,
            checker is _core.checker,
            onnx.defs.C is _core.defs,
            onnx.defs.has is _core.defs.has_schema,
            onnx.checker.ValidationError is _core.checker.ValidationError,
            onnx.shape_inference.InferenceError is _core.shape_inference.InferenceError,
            isinstance(onnx.checker.DEFAULT_CONTEXT, _core.checker.CheckerContext),
        ]
        assert len(set(places)) == 1, places
        return places[0]

    def works():
        import onnx
        text = '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) { y = Abs(x) }'
        model = onnx.parser.parse_model(text)
        assert type(model) is onnx.ModelProto
        onnx.checker.check_model(model)
        onnx.checker.check_node(model.graph.node[0])
        assert "Abs" in onnx.printer.to_text(model)
        epsilon = onnx.defs.get_schema("BatchNormalization").attributes["epsilon"]
        assert type(epsilon.default_value) is onnx.AttributeProto
        assert "epsilon" in repr(epsilon)
        assert not onnx.defs.get_schema("Relu").non_deterministic
        return model
"""


def run(code):
    script = textwrap.dedent(START) + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_before_the_package_is_imported():
    run(
        """
        core = sardonyx.use_as_onnx_core()
        assert "onnx" not in sys.modules
        assert is_ours()
        works()
        assert _core.__spec__.name == "sardonyx._core"
        core.undo()
        assert not is_ours()
        works()
        """
    )


def test_after_the_package_is_imported():
    run(
        """
        assert not is_ours()
        model = works()
        original = sys.modules[NAME]
        context = sys.modules["onnx.checker"].DEFAULT_CONTEXT
        with sardonyx.use_as_onnx_core():
            assert is_ours()
            works()
            import onnx
            # Models in memory stay models.
            onnx.checker.check_model(model)
        assert not is_ours()
        assert sys.modules[NAME] is original
        assert sys.modules["onnx.checker"].DEFAULT_CONTEXT is context
        works()
        """
    )


def test_again_and_again():
    run(
        """
        for _ in range(2):
            first = sardonyx.use_as_onnx_core()
            second = sardonyx.use_as_onnx_core()
            second.undo()
            assert is_ours()
            first.undo()
            first.undo()
            assert not is_ours()
        with sardonyx.use_as_onnx_core():
            assert is_ours()
            works()
        """
    )


def test_the_package_need_not_be_used():
    run(
        """
        with sardonyx.use_as_onnx_core():
            pass
        assert "onnx" not in sys.modules and len(sys.meta_path) < 10
        assert not is_ours()
        """
    )
