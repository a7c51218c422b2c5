"""The RO-Crate of an experiment: complete, the same for the same results, valid by the community's own validator."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import rocrate

import write_crate
from fake_results import make_instruction_results, make_results
from reprolora.files import read_json, sha256_of

ROOT = Path(__file__).parents[2]
# What the validator's own environment runs, with a crate's folder and a context as arguments. The validator fetches the
# context that the crate names; it gets the copy that the package rocrate ships, and nothing else.
VALIDATE = """
import json
import sys
from pathlib import Path

import requests
from rocrate_validator import services

ADDRESS = "https://w3id.org/ro/crate/1.3/context"


class Stand(requests.adapters.BaseAdapter):
    def send(self, request, **options):
        response = requests.Response()
        response.request, response.url = request, request.url
        response.status_code = 200 if request.url == ADDRESS else 404
        response.headers["Content-Type"] = "application/ld+json"
        response._content = Path(sys.argv[2]).read_bytes()
        return response

    def close(self):
        pass


requests.Session.get_adapter = lambda session, url: Stand()
result = services.validate(
    services.ValidationSettings(rocrate_uri=sys.argv[1], profile_identifier="ro-crate-1.3", no_cache=True)
)
print(json.dumps([[issue.severity.name, issue.message] for issue in result.get_issues()]))
"""


def make_crate(results, monkeypatch) -> Path:
    output = results.folder / "ro-crate-metadata.json"
    settings = {key: results.settings[key] for key in ("experiment", "dataset", "models")}
    arms = dict.fromkeys(file.parent for file in [*results.metrics, *results.failures])
    arguments = ["--citation", ROOT / "CITATION.cff", "--files", *results.prompts, results.split, "--arms", *arms]
    arguments += ["--dataset", results.dataset, "--models", *results.models, "--output", output]
    monkeypatch.setattr(sys, "argv", ["x", "--settings", json.dumps(settings), *map(str, arguments)])
    write_crate.main()
    return output


@pytest.fixture
def results(tmp_path):
    return make_results(tmp_path / "a crate", rows=40, failed=("qlora",))


@pytest.fixture
def crate(results, monkeypatch):
    return make_crate(results, monkeypatch)


def entities(crate: Path) -> dict[str, dict]:
    return {entity["@id"]: entity for entity in read_json(crate)["@graph"]}


def test_every_file_is_listed_with_its_size_and_digest(results, crate):
    found = entities(crate)
    parts = {part["@id"] for part in found["./"]["hasPart"]}
    assert parts == {name for name, entity in found.items() if entity["@type"] == "File"}
    assert len(parts) == 4 + 4 + 1 + 1 + 1 + 1 + 1 + 4 + 1
    for name in parts:
        file = crate.parent / name
        assert found[name]["sha256"] == sha256_of(file) and found[name]["contentSize"] == str(file.stat().st_size)
    lora = found["smollm2-135m/lora/seed1/training.json"]
    assert (lora["encodingFormat"], lora["description"]) == (
        "application/json",
        "What was asked for, and what was really trained",
    )


def test_it_says_what_was_run_on_what_and_when(results, crate):
    found = entities(crate)
    run = found["#run"]
    assert run["@type"] == "CreateAction" and run["instrument"] == {"@id": "#reprolora"}
    assert {item["@id"] for item in run["object"]} == {"#dataset", "#model-smollm2-135m"}
    assert (run["startTime"], run["endTime"]) == ("2026-03-01T11:50:00+00:00", "2026-03-01T12:00:00+00:00")
    assert found["./"]["datePublished"] == "2026-03-01" and found["./"]["name"] == "Sentiment of tweets"
    assert "sha256:" + "c" * 64 in found["#model-smollm2-135m"]["identifier"]
    assert found["#author-1"]["name"] == "The Reprolora authors"
    assert found["#licence"]["name"] == "MIT"


def test_data_made_from_documents_are_known_by_the_digest_of_these(tmp_path, monkeypatch):
    results = make_instruction_results(tmp_path)
    found = entities(make_crate(results, monkeypatch))
    assert found["#dataset"]["identifier"] == "sha256:" + "e" * 64
    assert found["#licence"]["name"] == "BSD-3-Clause"


def test_the_same_results_give_the_same_crate(results, crate, monkeypatch):
    first = crate.read_bytes()
    assert make_crate(results, monkeypatch).read_bytes() == first


@pytest.fixture(scope="module")
def validate(tmp_path_factory):
    """The community's validator, offline: what a crate's folder violates."""
    environment = tmp_path_factory.mktemp("validator")
    python = environment / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    install = [python, "-m", "pip", "install", "-q", "-r", ROOT / "tests" / "crate-validator.lock"]
    subprocess.run(install, check=True, capture_output=True, timeout=600)
    context = Path(rocrate.__file__).parent / "data" / "ro-crate.jsonld"

    def run(folder: Path) -> list[list[str]]:
        command = [python, "-c", VALIDATE, folder, context]
        done = subprocess.run(command, capture_output=True, text=True, cwd=environment, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_the_validator_finds_nothing_that_is_required_missing(results, crate, validate):
    assert validate(crate.parent) == []
    (crate.parent / "summary.json").unlink()
    assert [severity for severity, message in validate(crate.parent) if "summary.json" in message] == ["REQUIRED"]
