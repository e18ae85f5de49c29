"""Every input of the table gets its named error, publishes nothing, and leaves a run that can go on or no run."""

from pathlib import Path

import pytest
from tests.bad_inputs import rows_by_blocks
from tests.by_blocks.bad_input import BAD, failing

from trueup.by_blocks.run import resume
from trueup.check import check_bundle
from trueup.errors import TrueupError
from trueup.run.local import LocalPool

PAGE = Path(__file__).parents[2] / "docs" / "bad-input.md"


@pytest.mark.parametrize(
    ("call", "error", "message"), [pytest.param(c, e, m, id=what) for what, c, e, m in BAD]
)
def test_bad_input_is_refused_by_name_and_publishes_nothing(call, error, message, tmp_path):
    with pytest.raises(error) as caught:
        call(tmp_path)
    assert type(caught.value) is error
    assert message in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_table_is_documented_word_for_word():
    page = PAGE.read_text()
    assert not [line for line in rows_by_blocks() if line not in page]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("trueup.by_blocks.tasks.write_measured", OSError(28, "No space left on device")),
        ("trueup.by_blocks.tasks.write_counts", OSError(28, "No space left on device")),
        ("trueup.by_blocks.tasks.up", MemoryError()),
        ("trueup.by_blocks.run.write_bundle", OSError(28, "No space left on device")),
        ("trueup.io.bundle.write_manifest", OSError(28, "No space left on device")),
    ],
)
def test_a_run_that_a_resource_stopped_goes_on(name, error, tmp_path):
    with pytest.raises(TrueupError):
        failing(name, error)(tmp_path)
    assert not (tmp_path / "out").exists()
    resume(tmp_path / "out.run", executor=LocalPool(1))
    assert all(check.holds for check in check_bundle(tmp_path / "out"))


def test_data_at_fault_leave_no_run(tmp_path):
    _, call, *_ = next(row for row in BAD if row[0] == "a record that cannot exist")
    with pytest.raises(TrueupError):
        call(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"spec.toml", "people.csv", "blocks.csv"}
