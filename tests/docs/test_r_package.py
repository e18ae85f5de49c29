"""The R package: R's own check, with its examples, tests and vignette run against this source tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_R = shutil.which("R") is None and "TRUEUP_REQUIRE_R" not in os.environ


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT_R, reason="R is not installed (TRUEUP_REQUIRE_R=1 demands it)")
def test_r_cmd_check_finds_no_error_and_no_warning(tmp_path):
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {
        "TRUEUP": f"{sys.executable} -m trueup",
        "PYTHONPATH": paths,
        "_R_CHECK_FORCE_SUGGESTS_": "false",  # arrow is looked for when it is used
    }
    for words in (["build", str(ROOT / "r")], ["check", "--no-manual", "trueup_0.1.0.tar.gz"]):
        done = subprocess.run(
            ["R", "CMD", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    status = re.search(r"^Status: (.*)$", done.stdout, re.MULTILINE)
    assert status is not None
    assert "ERROR" not in status[1]
    assert "WARNING" not in status[1]
    assert "checking tests ..." in done.stdout
    log = (tmp_path / "trueup.Rcheck" / "tests" / "testthat.Rout").read_text()
    assert "SKIP 0" in log, log[-1000:]
    assert re.search(r"PASS \d\d", log), log[-1000:]
