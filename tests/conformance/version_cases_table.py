"""Models of operators at versions that no backend case shows, for `version_cases.py`."""

import version_cases_flow
import version_cases_layout
import version_cases_math
import version_cases_ml
import version_cases_networks
import version_cases_options

TABLES = (
    version_cases_math,
    version_cases_layout,
    version_cases_networks,
    version_cases_flow,
    version_cases_ml,
    version_cases_options,
)
ROWS = [row for table in TABLES for row in table.ROWS]
