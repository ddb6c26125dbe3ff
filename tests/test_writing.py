"""Files are written beside their place and then moved: a failure leaves the older file whole, and nothing else."""

import errno
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bayesnmf.writing import replacing, try_folder, write_bytes, write_text


def test_text_and_bytes_are_written_as_given(tmp_path):
    write_text(tmp_path / "a.txt", "é\r\n\ud800\n")
    write_bytes(tmp_path / "a.bin", memoryview(b"\0\1"))
    assert (tmp_path / "a.txt").read_bytes() == "é\r\n\\ud800\n".encode()
    assert (tmp_path / "a.bin").read_bytes() == b"\0\1"
    assert sorted(os.listdir(tmp_path)) == ["a.bin", "a.txt"]


def test_the_temporary_file_is_beside_and_has_the_suffix(tmp_path):
    with replacing(tmp_path / "a.csv.gz") as temporary:
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".gz"
        assert not temporary.exists()
        temporary.write_text("x")
        assert not (tmp_path / "a.csv.gz").exists()
    assert os.listdir(tmp_path) == ["a.csv.gz"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError("x"), SystemExit(2)])
@pytest.mark.parametrize("folder", [False, True])
def test_a_failure_leaves_the_older_one(error, folder, tmp_path):
    place = tmp_path / "a"
    if folder:
        place.mkdir()
    (place / "part" if folder else place).write_text("older")
    with pytest.raises((KeyboardInterrupt, RuntimeError, SystemExit)), replacing(place) as temporary:  # noqa: PT012
        if folder:
            temporary.mkdir()
        (temporary / "part" if folder else temporary).write_text("newer")
        raise error
    assert (place / "part" if folder else place).read_text() == "older"
    assert os.listdir(tmp_path) == ["a"]


def test_a_folder_replaces_a_folder(tmp_path):
    for content in ("older", "newer"):
        with replacing(tmp_path / "a.zarr") as temporary:
            temporary.mkdir()
            (temporary / content).write_text("x")
    assert os.listdir(tmp_path) == ["a.zarr"]
    assert os.listdir(tmp_path / "a.zarr") == ["newer"]


def test_errors_name_the_file_and_the_cure(tmp_path):
    message = r"cannot write .*b/a\.txt: .*No such file.*; check free space and permissions"
    with pytest.raises(OSError, match=message) as caught:
        write_text(tmp_path / "b" / "a.txt", "x")
    assert caught.value.errno == errno.ENOENT
    assert os.listdir(tmp_path) == []


def test_names_as_long_as_they_may_be_are_written(tmp_path):
    """They have at most 255 bytes, and 84 of these characters have 252."""
    for name in ("字" * 83 + ".nc", "a" * 252 + ".nc"):
        write_text(tmp_path / name, "x")
        assert (tmp_path / name).read_text() == "x"


def test_links_are_written_through_and_permissions_kept(tmp_path):
    (tmp_path / "a.txt").write_text("older")
    (tmp_path / "a.txt").chmod(0o640)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    write_text(tmp_path / "link.txt", "newer")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "a.txt").read_text() == "newer"
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o640


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="this system has no /dev/full")
def test_devices_are_written_to_and_stay(tmp_path):
    write_text("/dev/null", "x")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(OSError, match="No space left"):
        write_text("/dev/full", "x")
    assert Path("/dev/full").is_char_device()


def test_trying_a_folder_leaves_nothing_in_it(tmp_path):
    try_folder(tmp_path)
    assert os.listdir(tmp_path) == []
    with pytest.raises(OSError, match="No such file"):
        try_folder(tmp_path / "missing")


AS_NOBODY = """
import os, sys
from bayesnmf.writing import try_folder, write_text
os.setgid(65534), os.setuid(65534)
tries = {"try": lambda path: try_folder(os.path.dirname(path)), "write": lambda path: write_text(path, "newer")}
try:
    tries[sys.argv[1]](sys.argv[2])
except PermissionError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("what", ["try", "write", "write protected"])
def test_what_may_not_be_written_is_not(what):
    """As another user: in a folder of root's, and over a protected file in a folder of their own."""
    with tempfile.TemporaryDirectory() as name:  # pytest's folders are closed to others
        folder = Path(name)
        folder.chmod(0o755)
        place = folder / "a.txt"
        place.write_text("older")
        place.chmod(0o444 if what == "write protected" else 0o666)
        if what == "write protected":
            os.chown(folder, 65534, 65534)
        command = [sys.executable, "-c", AS_NOBODY, what.split()[0], str(place)]
        found = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent.parent)
        assert ("write-protected" if what == "write protected" else "Permission denied") in found.stdout, found
        assert place.read_text() == "older"
        assert os.listdir(folder) == ["a.txt"]
