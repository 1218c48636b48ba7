"""Stands in for the reference's build backend, so that pip can fetch its sources without tools to build them.

pip asks a source archive for its name and version before it keeps it, and nothing else.
"""

import pathlib


def prepare_metadata_for_build_wheel(directory, config_settings=None):
    about = dict(
        line.split(": ", 1)
        for line in pathlib.Path("PKG-INFO").read_text(encoding="utf-8").splitlines()
        if line.startswith(("Metadata-Version: ", "Name: ", "Version: "))
    )
    info = pathlib.Path(directory, f"{about['Name']}-{about['Version']}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text("".join(f"{key}: {value}\n" for key, value in about.items()))
    return info.name
