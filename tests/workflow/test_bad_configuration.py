"""A fault in the configuration ends the run in one line, with exit status 2, and leaves nothing behind."""

import pytest
import yaml


def ended(project, *arguments) -> str:
    """The one line that a user gets; fails when there is more, or when anything was left behind."""
    done = project.snakemake(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    # Snakemake itself says first which profile it uses.
    profile, line = done.stderr.splitlines()
    assert profile.startswith("Using workflow specific profile")
    assert not (project.folder / "results").exists()
    assert not [*project.folder.glob(".snakemake/locks/*"), *project.folder.glob(".snakemake/metadata/*")]
    return line


def test_a_misspelt_key_in_a_file(fresh):
    file = fresh.folder / "config/experiments/parity.yaml"
    file.write_text(file.read_text().replace("max_length", "max_lenght"))
    message = "training.max_lenght: unknown key; did you mean 'max_length'?"
    assert ended(fresh) == f"error: config/experiments/parity.yaml: {message}"


def test_a_file_that_is_not_yaml(fresh):
    (fresh.folder / "config/methods.yaml").write_text("lora: {peft: [}\n")
    assert ended(fresh).startswith("error: config/methods.yaml:1:15: not YAML: ")


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("experiments=party", "experiments.0: no experiment 'party'; did you mean 'parity'?"),
        (
            "experiment={parity: {training: {learning_rate: 2}}}",
            "experiment.parity.training.learning_rate: input should be less than or equal to 1, but is 2.0",
        ),
    ],
)
def test_an_override_on_the_command_line(fresh, override, message):
    assert ended(fresh, "--config", override) == f"error: --config: {message}"


def test_an_override_in_a_file(fresh):
    file = fresh.folder / "my settings.yaml"
    file.write_text(yaml.safe_dump({"experiment": {"parity": {"seed": [1]}}}))
    message = "experiment.parity.seed: unknown key here; did you mean 'split.seed'?"
    assert ended(fresh, "--configfile", file) == f"error: my settings.yaml: {message}"


def test_two_faults_are_two_lines(fresh):
    faults = "experiment={parity: {seed: 1, trainin: {}}}"
    done = fresh.snakemake("--config", faults)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 3


def test_an_override_that_is_right(fresh):
    """The value arrives where it is read, with its type; and a high learning rate is said aloud."""
    status, text = fresh.start(
        "--dry-run", "--printshellcmds", "--config", "experiment={parity: {training: {learning_rate: 1e-3, epochs: 3}}}"
    )
    assert status == 0
    assert '"epochs":3.0,' in text and '"learning_rate":0.001,' in text
    assert "warning: --config: experiment.parity.training.learning_rate: 0.001 is above 0.0005" in text


def test_a_tracker_that_is_not_installed(fresh):
    message = "tracking: swanlab: the package swanlab is not installed; pip install swanlab, or set tracking: none"
    assert ended(fresh, "--config", "tracking=swanlab") == f"error: {message}"
