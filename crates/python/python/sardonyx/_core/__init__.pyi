from sardonyx._core import checker as checker
from sardonyx._core import defs as defs
from sardonyx._core import generation as generation
from sardonyx._core import inliner as inliner
from sardonyx._core import ort as ort
from sardonyx._core import parser as parser
from sardonyx._core import printer as printer
from sardonyx._core import session as session
from sardonyx._core import shape_inference as shape_inference
from sardonyx._core import simplifier as simplifier
from sardonyx._core import version_converter as version_converter

ONNX_ML: bool
__version__: str
IR_VERSION: int
HAS_TEST_OPERATORS: bool
