"""How pip builds the wheel: scikit-build-core compiles, auditwheel says what it runs on.

scikit-build-core alone would tag the wheel for "linux", which promises every Linux and is refused by
package indexes. auditwheel reads the symbols that the libraries ask of glibc and libstdc++, puts the
true floor into the tag, and copies libraries in that no Linux is sure to have (libsodium).
"""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tempfile
from typing import Any, Optional

from scikit_build_core import build as _skbuild
from scikit_build_core.build import (  # noqa: F401
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)


def build_wheel(wheel_directory: str, config_settings: Optional[dict[str, Any]] = None,
                metadata_directory: Optional[str] = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        name = _skbuild.build_wheel(folder, config_settings, metadata_directory)
        repaired = pathlib.Path(folder) / "repaired"
        command = [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(repaired),
                   str(pathlib.Path(folder) / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"auditwheel cannot say what {name} runs on: {done.stderr.strip()}")
        (wheel,) = repaired.iterdir()
        (pathlib.Path(wheel_directory) / wheel.name).write_bytes(wheel.read_bytes())
        return wheel.name
