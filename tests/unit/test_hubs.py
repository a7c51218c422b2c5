"""hf: and modelscope: sources, against servers of our own with the hubs' real clients."""

from pathlib import Path

import pytest

from running import closed_port, contents, run_script, user_error
from servers import HuggingFaceHub, ModelScopeHub

REVISION = "0123456789abcdef0123456789abcdef01234567"
OTHER_REVISION = REVISION[::-1]
SMALL, LARGE = b'{"text": "hi", "label": "joy"}\n', b'{"text": "hello again", "label": "joy"}\n' * 9000
FILES = {"data/small.jsonl": SMALL, "data/large.jsonl": LARGE}
HUBS = {"hf": HuggingFaceHub, "modelscope": ModelScopeHub}


@pytest.fixture(params=HUBS)
def kind(request):
    return request.param


@pytest.fixture
def hub(kind):
    with HUBS[kind](repositories={("dataset", "owner/name", REVISION): FILES}).running() as server:
        yield server


def environment(url: str, tmp_path: Path) -> dict[str, str]:
    return {
        "HOME": f"{tmp_path}-home",
        "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "MODELSCOPE_ENDPOINT": url,
        "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "1",
        "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1",
    }


def fetch(
    kind: str, url: str, tmp_path: Path, member: object, revision: str = REVISION, name: str = "owner/name", **more
):
    settings = {"source": f"{kind}:{name}@{revision}", "member": member, "sha256": None, **more}
    output = tmp_path / "raw" / "train"
    done = run_script(
        "fetch_dataset", "--settings", settings, "--output", output, environment=environment(url, tmp_path)
    )
    return done, output


@pytest.mark.parametrize("path", FILES)
def test_file(kind, hub, tmp_path, path):
    done, output = fetch(kind, hub.url, tmp_path, path)
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == FILES[path]
    assert contents(tmp_path) == ["raw/train"]


def test_interrupted_download_goes_on_where_it_stopped(kind, hub, tmp_path):
    body = bytes(12 << 20)  # the Hub's client writes and resumes in steps of 10 MiB
    hub.repositories["dataset", "owner/name", REVISION] = {"huge": body}
    hub.break_after["huge"], hub.times = 11 << 20, 1
    done, output = fetch(kind, hub.url, tmp_path, "huge")
    assert done.returncode == 0, done.stderr
    assert output.read_bytes() == body
    first, second = hub.fetched("huge")
    assert first is None and second.startswith("bytes=1"), "it began anew"


def test_download_that_keeps_breaking_off(kind, hub, tmp_path):
    hub.break_after["data/large.jsonl"] = 70_000
    done, _ = fetch(kind, hub.url, tmp_path, "data/large.jsonl")
    message = user_error(done)
    assert f"{kind}:owner/name@{REVISION}" in message and "broke off" in message and "run again" in message
    assert contents(tmp_path) == []


@pytest.mark.parametrize("path", FILES)
def test_other_content_than_listed(kind, hub, tmp_path, path):
    hub.corrupt.add(path)
    done, _ = fetch(kind, hub.url, tmp_path, path)
    message = user_error(done)
    assert (f"{kind}:owner/name" in message and "sha256" in message) or "checksum" in message
    assert contents(tmp_path) == []


def test_other_content_than_pinned(kind, hub, tmp_path):
    done, _ = fetch(kind, hub.url, tmp_path, "data/small.jsonl", sha256="0" * 64)
    assert "checksum mismatch" in user_error(done)
    assert contents(tmp_path) == []


def test_unknown_revision(kind, hub, tmp_path):
    done, _ = fetch(kind, hub.url, tmp_path, "data/small.jsonl", OTHER_REVISION)
    message = user_error(done)
    assert OTHER_REVISION in message and "revision" in message
    assert contents(tmp_path) == []


def test_unknown_repository(kind, hub, tmp_path):
    done, _ = fetch(kind, hub.url, tmp_path, "data/small.jsonl", name="owner/other")
    assert "owner/other" in user_error(done)


def test_unknown_file_is_told_with_its_neighbours(kind, hub, tmp_path):
    done, _ = fetch(kind, hub.url, tmp_path, "data/smal.jsonl")
    message = user_error(done)
    assert "no file data/smal.jsonl" in message and "data/small.jsonl" in message


def test_gated_repository(tmp_path):
    with HuggingFaceHub(gated=True).running() as hub:
        done, _ = fetch("hf", hub.url, tmp_path, "data/small.jsonl")
    assert "gated" in user_error(done)


def test_no_network(kind, tmp_path):
    done, _ = fetch(kind, f"http://127.0.0.1:{closed_port()}", tmp_path, "data/small.jsonl")
    message = user_error(done)
    assert "Connection refused" in message and "check the network" in message
    assert contents(tmp_path) == []


def test_a_revision_that_moves_is_refused(kind, hub, tmp_path):
    done, _ = fetch(kind, hub.url, tmp_path, "data/small.jsonl", "main")
    assert "full commit hash" in user_error(done)
    assert hub.requests == []


def test_only_the_file_asked_for_is_fetched(kind, hub, tmp_path):
    fetch(kind, hub.url, tmp_path, "data/small.jsonl")
    assert len(hub.fetched("small.jsonl")) == 1 and hub.fetched("large.jsonl") == []
