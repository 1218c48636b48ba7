"""Checks a bill of materials against the schema of CycloneDX 1.6: `validate_sbom.py FILE`."""

import sys
from pathlib import Path

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

path = Path(sys.argv[1])
error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(path.read_text())
if error is not None:
    sys.exit(f"{path.name}: {error}")
