"""Publishing to stand-ins for both hubs with the real clients: what is sent, what is refused, what is said."""

import json
from pathlib import Path

import pytest

from reprolora.files import read_json, sha256_of, write_json, write_jsonl
from running import closed_port, contents, run_script, user_error
from servers import HuggingFaceUploads, ModelScopeUploads

HUBS = {"hf": HuggingFaceUploads, "modelscope": ModelScopeUploads}
DATASET = {
    "name": "numbers",
    "description": "Numbers and\nwhat they are",
    "license": "CC-BY-4.0",
    "citation": "@misc{numbers,\n  year = 2020\n}",
    "url": "https://example.org",
    "labels": ["even", "odd"],
}
MODEL = {
    "name": "tiny",
    "description": "A random Llama",
    "license": "Apache-2.0",
    "citation": None,
    "source": f"hf:maker/base@{'a' * 40}",
}
EXPERIMENT = {"name": "parity", "title": "Even or odd", "question": "Does it run?"}
# Large enough to be kept outside git by both stand-ins, as weights are.
WEIGHTS = bytes(range(256)) * 40


@pytest.fixture(params=HUBS)
def kind(request):
    return request.param


@pytest.fixture
def hub(kind):
    with HUBS[kind]().running() as server:
        yield server


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "results"
    for number, split in enumerate(("train", "validation", "test"), start=1):
        rows = [{"id": str(n), "text": f"{split} {n}", "label": "even"} for n in range(number)]
        write_jsonl(folder / f"{split}.jsonl", rows)
    counts = {"train": {"even": 1, "odd": 0}, "validation": {"even": 2, "odd": 0}, "test": {"even": 3, "odd": 0}}
    rows = {"train": 1, "validation": 2, "test": 3}
    write_json(folder / "summary.json", {"seed": 7, "rows": rows, "counts": counts})
    files = {name: str(folder / f"{name}.jsonl") for name in rows} | {"summary": str(folder / "summary.json")}
    return {"what": "dataset", "experiment": EXPERIMENT, "dataset": DATASET, "files": files}


@pytest.fixture
def adapter(tmp_path):
    folder = tmp_path / "results/adapter"
    configuration = {"peft_type": "LORA", "base_model_name_or_path": "/home/someone/results/models/tiny", "r": 4}
    write_json(folder / "adapter_config.json", configuration)
    (folder / "adapter_model.safetensors").write_bytes(WEIGHTS)
    (folder / "README.md").write_text("# The card\n")
    files = [str(folder / name) for name in ("adapter_config.json", "adapter_model.safetensors")]
    parts = {"what": "adapter", "experiment": EXPERIMENT, "dataset": DATASET, "model": MODEL}
    return parts | {"files": {"adapter": files, "card": str(folder / "README.md")}}


def publish(
    tmp_path: Path, where: str, url: str, publication: dict, *, upload=True, private=True, token=None, home=None
):
    settings = [publication | {"repository": where, "upload": upload, "private": private}]
    environment = {
        "HOME": home or f"{tmp_path}-home",
        "HF_ENDPOINT": url,
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_XET": "1",  # the stand-in speaks git-lfs
        "MODELSCOPE_ENDPOINT": url,
        "MODELSCOPE_UPLOAD_BLOB_MAX_ATTEMPTS": "1",
        "MODELSCOPE_UPLOAD_COMMIT_MAX_ATTEMPTS": "1",
        "MODELSCOPE_API_MAX_RETRIES": "0",
    }
    if token:
        environment |= {"HF_TOKEN": token, "MODELSCOPE_API_TOKEN": token}
    folder = tmp_path / "staged"
    done = run_script("publish", "--settings", json.dumps(settings), "--folder", folder, environment=environment)
    assert not token or token not in done.stdout + done.stderr
    return done, folder / where.replace(":", "/")


def sent(hub) -> list[str]:
    """The requests that change something on the hub."""
    return [path for method, path, _ in hub.requests if method in ("POST", "PUT") and "validate-yaml" not in path]


def test_a_dry_run_lists_everything_and_asks_no_hub(kind, hub, tmp_path, adapter):
    done, folder = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, upload=False)
    assert done.returncode == 0, done.stderr
    assert hub.requests == []
    assert f"{kind}:me/adapter: adapter, private, licence CC-BY-4.0 and Apache-2.0" in done.stdout
    names = ["LICENSE", "README.md", "adapter_config.json", "adapter_model.safetensors", "checksums.sha256"]
    assert contents(folder) == names
    for name in names:
        size, digest = f"{(folder / name).stat().st_size:,}", sha256_of(folder / name)
        assert any(line.split() == [size, digest, name] for line in done.stdout.splitlines()), name
    assert f"upload=[{kind}:me/adapter]" in done.stdout


def test_an_adapter_is_uploaded_whole_and_private(kind, hub, tmp_path, adapter):
    done, folder = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    assert done.returncode == 0, done.stderr
    assert hub.private == {("model", "me/adapter"): True}
    held = hub.held("model", "me/adapter")
    assert {name: held[name] for name in contents(folder)} == {n: (folder / n).read_bytes() for n in contents(folder)}
    assert held["adapter_model.safetensors"] == WEIGHTS
    assert held["README.md"] == b"# The card\n"
    assert "uploaded 5 of 5 files, the checksums agree" in done.stdout
    if kind == "modelscope":
        assert hub.licences["model", "me/adapter"] == "Apache-2.0"
    else:
        assert f"it is now hf:me/adapter@{'c' * 40}" in done.stdout


def test_the_base_model_is_named_as_others_find_it(tmp_path, adapter):
    done, folder = publish(tmp_path, "hf:me/adapter", "http://127.0.0.1:9", adapter, upload=False)
    assert done.returncode == 0, done.stderr
    content = read_json(folder / "adapter_config.json")
    assert (content["base_model_name_or_path"], content["revision"]) == ("maker/base", "a" * 40)
    assert content["r"] == 4
    local = adapter | {"model": adapter["model"] | {"source": "file:/home/someone/base"}}
    done, folder = publish(tmp_path, "hf:me/local", "http://127.0.0.1:9", local, upload=False)
    assert done.returncode == 0, done.stderr
    assert read_json(folder / "adapter_config.json")["base_model_name_or_path"] is None
    assert "/home/someone" in Path(adapter["files"]["adapter"][0]).read_text(), "the adapter itself was changed"


def test_a_dataset_is_uploaded_with_its_card(kind, hub, tmp_path, dataset):
    done, folder = publish(tmp_path, f"{kind}:me/data", hub.url, dataset, token=hub.token)
    assert done.returncode == 0, done.stderr
    held = hub.held("dataset", "me/data")
    assert held["test.jsonl"] == Path(dataset["files"]["test"]).read_bytes()
    card = held["README.md"].decode()
    assert "license: cc-by-4.0" in card and "Numbers and what they are" in card
    assert "| validation | 2 | 2 | 0 |" in card and "@misc{numbers," in card
    assert "CC-BY-4.0" in held["LICENSE"].decode()
    lines = held["checksums.sha256"].decode().splitlines()
    assert f"{sha256_of(dataset['files']['train'])}  train.jsonl" in lines
    assert {line.split("  ")[1] for line in lines} == set(contents(folder)) - {"checksums.sha256"}


def test_a_second_upload_sends_nothing(kind, hub, tmp_path, adapter):
    publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    hub.requests.clear()
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    assert done.returncode == 0, done.stderr
    assert sent(hub) == []
    assert "everything was there already" in done.stdout


def test_an_upload_that_broke_off_is_gone_on_with(kind, hub, tmp_path, adapter):
    hub.full = True
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    message = user_error(done)
    assert f"{kind}:me/adapter: the upload" in message and "run again" in message
    hub.full = False
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    assert done.returncode == 0, done.stderr
    assert hub.held("model", "me/adapter")["adapter_model.safetensors"] == WEIGHTS


def test_a_repository_with_other_content_is_left_alone(kind, hub, tmp_path, adapter):
    theirs = {"adapter_model.safetensors": WEIGHTS[::-1], "notes.txt": b"mine"}
    hub.make("model", "me/adapter", True, theirs)
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    message = user_error(done)
    assert "has other content already (adapter_model.safetensors, notes.txt)" in message
    assert hub.held("model", "me/adapter") == theirs and sent(hub) == []


def test_a_public_repository_gets_nothing_that_is_to_be_private(kind, hub, tmp_path, adapter):
    hub.make("model", "me/adapter", False)
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    assert "is public on the hub, but the configuration says private" in user_error(done)
    assert hub.held("model", "me/adapter") == {}


def test_a_file_that_arrives_damaged_is_noticed(kind, hub, tmp_path, adapter):
    hub.damage.add("adapter_model.safetensors")
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=hub.token)
    assert "adapter_model.safetensors is not on the hub as it is here (checksum mismatch)" in user_error(done)


def test_a_hub_that_lists_no_hashes_is_asked_for_the_files(tmp_path, adapter):
    with ModelScopeUploads(hashes=False).running() as hub:
        done, _ = publish(tmp_path, "modelscope:me/adapter", hub.url, adapter, token=hub.token)
        assert done.returncode == 0, done.stderr
        hub.held("model", "me/adapter")["adapter_model.safetensors"] = WEIGHTS[::-1]
        done, _ = publish(tmp_path, "modelscope:me/adapter", hub.url, adapter, token=hub.token)
        assert "has other content already (adapter_model.safetensors)" in user_error(done)


@pytest.mark.parametrize("token", ["a_wrong_token", None])
def test_no_token_or_a_wrong_one(kind, hub, tmp_path, adapter, token):
    done, _ = publish(tmp_path, f"{kind}:me/adapter", hub.url, adapter, token=token)
    message = user_error(done)
    assert message.startswith(f"{kind}:me/adapter: ") and ("hf auth login" in message or "ms login" in message)
    assert hub.private == {}


def test_no_network(kind, tmp_path, adapter):
    done, _ = publish(tmp_path, f"{kind}:me/adapter", f"http://127.0.0.1:{closed_port()}", adapter, token="x_token_x")
    message = user_error(done)
    assert "Connection refused" in message and "run again" in message


def test_nothing_to_publish(tmp_path):
    done = run_script("publish", "--settings", "[]", "--folder", tmp_path)
    assert "name repositories under `publish`" in user_error(done)


def test_public_when_it_says_so(kind, hub, tmp_path, dataset):
    done, _ = publish(tmp_path, f"{kind}:me/data", hub.url, dataset, private=False, token=hub.token)
    assert done.returncode == 0, done.stderr
    assert hub.private == {("dataset", "me/data"): False}
