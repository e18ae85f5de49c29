"""Parts: whole, exactly once, and refused by name where they were altered."""

import threading

import pytest

from trueup.errors import BundleError
from trueup.run.parts import Parts


def racing(folder, writers):
    """What each of several racing writers reads back after it committed its own content."""
    barrier, seen = threading.Barrier(writers), [b""] * writers

    def write(at):
        parts = Parts(folder)

        def fill(path):
            path.write_bytes(bytes([at]) * 10_000)
            barrier.wait()  # all have their content before one commits

        part = parts.commit("one", fill)
        seen[at] = (folder / part.file).read_bytes()

    threads = [threading.Thread(target=write, args=(i,)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def test_of_racing_writers_one_wins_and_all_read_its_content(tmp_path):
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        seen = racing(folder, 8)
        assert len(set(seen)) == 1
        assert len(set(seen[0])) == 1
        assert len(list(folder.iterdir())) == 2, "a loser left its content behind"


def test_writers_that_overwrite_are_caught_by_that_test(tmp_path, monkeypatch):
    """A part that is renamed into place, as files usually are, lets the last writer win."""

    def renamed(self, part):
        (self.folder / "one.part").write_text(f'{{"file": "{part.file}", "digest": "", "bytes": 0}}')
        return True

    monkeypatch.setattr(Parts, "_link", renamed)
    assert any(len(set(racing(tmp_path / str(i), 8))) > 1 for i in range(20))


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"x" + b[1:], lambda b: b""])
def test_a_damaged_part_is_refused_by_name(tmp_path, damage):
    parts = Parts(tmp_path)
    part = parts.commit("counts", lambda path: path.write_bytes(b"whole"), ".bin")
    path = tmp_path / part.file
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BundleError, match=r"counts.*truncated"):
        parts.path("counts")


def test_a_missing_part_and_a_damaged_record_are_refused_by_name(tmp_path):
    parts = Parts(tmp_path)
    with pytest.raises(BundleError, match="part 'counts' of the run is missing"):
        parts.path("counts")
    (tmp_path / "counts.part").write_text("{")
    with pytest.raises(BundleError, match=r"part .counts. in .* is truncated"):
        parts.find("counts")


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    def fails(path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(BundleError, match=r"part 'a'.*No space left"):
        Parts(tmp_path).commit("a", fails)
    assert not list(tmp_path.iterdir())


def test_digests_of_confidential_parts_are_keyed(tmp_path):
    digests = {
        Parts(tmp_path / key.hex(), key).commit("a", lambda path: path.write_bytes(b"same")).digest
        for key in (b"", b"1", b"2")
    }
    assert len(digests) == 3
    assert (tmp_path / "31").stat().st_mode & 0o777 == 0o700
