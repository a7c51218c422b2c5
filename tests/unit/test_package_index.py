"""pypi: sources, against a package index of our own with pip's real client."""

import hashlib
import io
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from running import closed_port, contents, run_script, user_error
from servers import PackageIndex

DATA = b"1\tgood\n2\tbad\n" * 5000


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def tar(files: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, body in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    return stream.getvalue()


def wheel(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("words/data.tsv"), data)  # ZipInfo: without today's date
    return stream.getvalue()


@pytest.fixture
def index():
    with PackageIndex(files={"words": {"words-1.0-py3-none-any.whl": wheel(DATA)}}).running() as server:
        yield server


def fetch(url: str, tmp_path: Path, sha256: str, member: object = "words/data.tsv", version: str = "1.0", **pip: str):
    environment = {
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_INDEX_URL": f"{url}/simple",
        "PIP_NO_CACHE_DIR": "1",
        "PIP_RETRIES": "1",
        "HOME": f"{tmp_path}-home",
        **pip,
    }
    settings = {"source": f"pypi:words=={version}", "member": member, "sha256": sha256}
    output = tmp_path / "raw" / "all"
    return run_script("fetch_dataset", "--settings", settings, "--output", output, environment=environment), output


def test_member_of_a_wheel(index, tmp_path):
    done, output = fetch(index.url, tmp_path, sha256(wheel(DATA)))
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == DATA
    assert contents(tmp_path) == ["raw/all"]


def test_setup_code_of_a_source_distribution_never_runs(index, tmp_path):
    marker = tmp_path / "it_ran"
    write = f"import pathlib; pathlib.Path({str(marker)!r}).touch()\n"
    backend = "def __getattr__(name):\n    raise AttributeError(name)\n"
    sdist = tar(
        {
            "words-1.0/setup.py": (write + "from setuptools import setup; setup(name='words', version='1.0')").encode(),
            "words-1.0/pyproject.toml": b'[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n',
            "words-1.0/b.py": (write + backend).encode(),
            "words-1.0/more/data.tsv": DATA,
        }
    )
    index.files["words"] = {"words-1.0.tar.gz": sdist}
    done, output = fetch(index.url, tmp_path, sha256(sdist), "words-1.0/more/data.tsv")
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == DATA
    assert not marker.exists()
    # The bait is live: whoever runs it, as `pip download` does, leaves the mark.
    (tmp_path / "bait.tar.gz").write_bytes(sdist)
    with tarfile.open(tmp_path / "bait.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    subprocess.run([sys.executable, "-c", "import b"], cwd=tmp_path / "words-1.0", check=True)
    assert marker.exists()


def test_other_content_than_pinned_is_refused_before_it_is_opened(index, tmp_path):
    """Also when the index does not tell hashes, or lies about them."""
    name, pinned = "words-1.0-py3-none-any.whl", sha256(b"what the catalogue pins")
    for told in (sha256(wheel(DATA)), None, pinned):
        index.told[name] = told
        done, _ = fetch(index.url, tmp_path, pinned)
        message = user_error(done)
        assert pinned in message and sha256(wheel(DATA)) in message and name in message
        assert contents(tmp_path) == []


def test_the_pin_chooses_among_the_files_of_a_version(index, tmp_path):
    sdist = tar({"words-1.0/data.tsv": b"other"})
    index.files["words"]["words-1.0.tar.gz"] = sdist
    done, output = fetch(index.url, tmp_path, sha256(sdist), "words-1.0/data.tsv")
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == b"other"
    assert index.fetched(".whl") == []


def test_settings_of_pip_are_followed(index, tmp_path):
    """A folder given as find-links serves, even though the user asks pip for wheels only or has another Python."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    sdist = tar({"words-1.0/data.tsv": DATA})
    (folder / "words-1.0.tar.gz").write_bytes(sdist)
    done, output = fetch(
        "http://unused.invalid",
        tmp_path,
        sha256(sdist),
        "words-1.0/data.tsv",
        PIP_NO_INDEX="1",
        PIP_FIND_LINKS=str(folder),
        PIP_ONLY_BINARY=":all:",
    )
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == DATA


def test_interrupted_download_goes_on_where_it_stopped(index, tmp_path):
    name = "words-1.0-py3-none-any.whl"
    index.break_after[name], index.times = 1000, 1
    done, output = fetch(index.url, tmp_path, sha256(wheel(DATA)))
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == DATA
    assert index.fetched("/files/") == [None, "bytes=1000-"]


def test_download_that_keeps_breaking_off(index, tmp_path):
    index.break_after["words-1.0-py3-none-any.whl"] = 1000
    done, _ = fetch(index.url, tmp_path, sha256(wheel(DATA)))
    assert "broke off after 1000 of" in user_error(done)
    assert len(index.fetched("/files/")) == 2
    assert contents(tmp_path) == []


def test_no_network(tmp_path):
    done, _ = fetch(f"http://127.0.0.1:{closed_port()}", tmp_path, sha256(DATA), PIP_RETRIES="0")
    message = user_error(done)
    assert "pypi:words==1.0" in message and "Connection refused" in message and "check the network" in message
    assert contents(tmp_path) == []


def test_version_that_the_index_does_not_have(index, tmp_path):
    done, _ = fetch(index.url, tmp_path, sha256(DATA), version="2.0")
    assert "pypi:words==2.0" in user_error(done)


def test_unpinned_package(index, tmp_path):
    done, _ = fetch(index.url, tmp_path, "")
    assert "give the file's `sha256`" in user_error(done)
    assert index.requests == []
