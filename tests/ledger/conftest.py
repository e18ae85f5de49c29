"""Ledgers to test on: SQLite files, and a PostgreSQL server of our own."""

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from pathlib import Path

import pytest

from tests.conftest import skip_loudly

BINARIES = Path("/usr/lib/postgresql")


@pytest.fixture(scope="session")
def server():
    """Start a PostgreSQL server on a Unix socket, as a user that it accepts; return its folder."""
    found = sorted(BINARIES.glob("*/bin/initdb"))
    if not found:
        skip_loudly(f"there is no PostgreSQL server below {BINARIES} (Debian: apt install postgresql)")
    binaries, folder = found[-1].parent, Path(tempfile.mkdtemp(prefix="trueup-pg-", dir="/tmp"))
    user = _user(folder)
    data = folder / "data"
    control = [str(binaries / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    _run([str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", "tester", "-N"], user)
    # No test cuts the power, so the server need not sync.
    _run([*control, "-o", f"-k {folder} -c listen_addresses= -c fsync=off", "start"], user)
    yield folder
    _run([*control, "-m", "immediate", "stop"], user)
    shutil.rmtree(folder, ignore_errors=True)


def _user(folder):
    """PostgreSQL refuses to run as root: hand the folder to another user, if we are root."""
    if os.geteuid():
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    name = "postgres" if "postgres" in names else "nobody"
    shutil.chown(folder, name)
    return name


def _run(command, user):
    subprocess.run(command, user=user, check=True, capture_output=True, cwd="/")


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def url(request, tmp_path):
    """Return the place of a ledger that does not exist yet, on each kind of store."""
    if request.param == "sqlite":
        return str(tmp_path / "ledger.db")
    return database(request.getfixturevalue("server"))


def database(folder):
    """Make an empty schema; return the URL of a ledger in it."""
    import psycopg

    name = f"t{uuid.uuid4().hex}"
    server = f"postgresql:///postgres?host={folder}&user=tester"
    with psycopg.connect(server) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    return f"{server}&options=-csearch_path%3D{name}"
