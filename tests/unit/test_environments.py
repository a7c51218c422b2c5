"""The lock and envs/*.yaml: complete, of one mind, and enough for every script of the rules that name them."""

import ast
import functools
import importlib.util
import json
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
ENVIRONMENTS = sorted((ROOT / "envs").glob("*.yaml"))
ACCELERATORS = ("cpu", "cuda", "rocm")
# Packages that only one build of PyTorch needs, so that the lock cannot hold them.
ACCELERATOR_ONLY = {"train-cuda": re.compile("nvidia-|cuda-|triton$"), "train-rocm": re.compile("triton-rocm$")}
WHEEL_INDEXES = {"fetch": "cpu", "train-cpu": "cpu", "train-rocm": "rocm7.2"}
# A program, a reader or a plug-in that is in use without an import of ours says so behind its pin.
LOADED = re.compile(r"^\s*(?:- )?([\w.-]+)==\S+\s+# (?:loaded by|run as) ", re.MULTILINE)

specification = importlib.util.spec_from_file_location("pin", ROOT / "envs" / "pin.py")
pin = importlib.util.module_from_spec(specification)
specification.loader.exec_module(pin)


@functools.cache
def lock() -> dict[str, str]:
    return pin.pins(ROOT / "requirements.lock")


@functools.cache
def pip_section(name: str) -> tuple[list[str], dict[str, str]]:
    """The options and the pins in the `pip:` section of an environment file, read as conda reads it."""
    sections = [
        d for d in yaml.safe_load((ROOT / "envs" / f"{name}.yaml").read_text())["dependencies"] if type(d) is dict
    ]
    [section] = sections
    options = [line for line in section["pip"] if line.startswith("-")]
    entries = [line.split("==") for line in section["pip"] if line not in options]
    assert all(len(entry) == 2 for entry in entries), "every package has exactly one exact version"
    names = [canonicalize_name(entry[0]) for entry in entries]
    assert len(names) == len(set(names))
    return options, dict(zip(names, (entry[1] for entry in entries), strict=True))


def asked_for(path: Path) -> set[str]:
    text = path.read_text()
    part = text[text.index(pin.ASKED) : text.index(pin.NEEDED)]
    return {canonicalize_name(match["name"]) for match in map(pin.PIN.match, part.splitlines()) if match}


@functools.cache
def modules_of(path: Path) -> frozenset[str]:
    """The modules that a Python file imports anywhere in it: `a.b` for `import a.b`, and for `from a import b` too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def file_of(module: str) -> Path | None:
    """The file of one of our own modules."""
    path = SCRIPTS.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


@functools.cache
def own_modules() -> set[str]:
    """The names of our own modules and folders of them, which no package brings."""
    paths = {*SCRIPTS.glob("*.py"), SCRIPTS / "reprolora", *(ROOT / "tests").rglob("*.py")}
    return {path.stem for path in paths} | {path.parent.name for path in paths}


def imports_of(*paths: Path) -> frozenset[str]:
    """The foreign top-level modules that the files import, themselves or through the library."""
    seen: set[Path] = set()
    foreign: set[str] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        for module in modules_of(path):
            parents = [module.rsplit(".", drop)[0] for drop in range(module.count(".") + 1)]
            waiting += filter(None, map(file_of, parents))
            foreign.add(module.split(".")[0])
    return frozenset(foreign - sys.stdlib_module_names - own_modules())


@functools.cache
def distributions() -> dict[str, set[str]]:
    return {
        module: {canonicalize_name(name) for name in names}
        for module, names in metadata.packages_distributions().items()
    }


def packages_for(*paths: Path) -> set[str]:
    """The packages that the files' imports come from."""
    modules = imports_of(*paths)
    modules -= {"pip"}  # comes with Python in every environment
    unknown = modules - distributions().keys()
    assert not unknown, f"imported, but of no installed package: {unknown}"
    return set().union(*(distributions()[module] for module in modules))


READ_RULES = """
import json, sys
from pathlib import Path
from snakemake.api import SnakemakeApi
from snakemake.settings.types import ConfigSettings, OutputSettings, Quietness, ResourceSettings
with SnakemakeApi(OutputSettings(quiet={Quietness.ALL})) as api:
    workflow = api.workflow(
        resource_settings=ResourceSettings(),
        config_settings=ConfigSettings(config={"hardware": sys.argv[1]}),
        snakefile=Path(sys.argv[2]),
    )
    rules = workflow._workflow.rules
    print(json.dumps({rule.name: rule.conda_env and str(rule.conda_env) for rule in rules if not rule.norun}))
"""


@functools.cache
def environment_of_rules(accelerator: str) -> dict[str, str]:
    """Rule name to the name of the environment file that it is given, as Snakemake itself reads the rules."""
    command = [sys.executable, "-c", READ_RULES, accelerator, str(ROOT / "Snakefile")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rules = json.loads(done.stdout.splitlines()[-1])
    return {name: Path(path).stem if path else "" for name, path in rules.items()}


def rules_of(environment: str) -> list[str]:
    return [
        name
        for accelerator in ACCELERATORS
        for name, env in environment_of_rules(accelerator).items()
        if env == environment
    ]


def scripts_of(environment: str) -> list[Path]:
    return [SCRIPTS / f"{name}.py" for name in dict.fromkeys(rules_of(environment))]


@pytest.mark.parametrize("path", pin.lists(), ids=lambda path: path.name)
def test_lists_are_complete_and_in_step(path):
    assert path.read_text() == pin.render(path), f"{path.name} is not what the installed packages need: run make pin"


def test_the_lock_is_what_is_installed():
    installed = pin.installed()
    assert {name: installed.get(name) for name in lock()} == lock()


def test_a_wrong_list_is_noticed(tmp_path):
    """The comparison above can fail: a version, a missing dependency and a needless one each change the text."""
    text = (ROOT / "envs" / "data.yaml").read_text()
    for wrong in (
        re.sub(r"(pyarrow==)\S+", r"\g<1>1.0", text),
        text.replace("# What those need", "# What those need\n      - numpy==1.0"),
        text.replace("      # What those need", "      - seaborn==0.1\n      # What those need"),
    ):
        path = tmp_path / "data.yaml"
        path.write_text(wrong)
        assert wrong != text and pin.render(path) != wrong


@pytest.mark.parametrize("name", [path.stem for path in ENVIRONMENTS])
def test_versions_equal_the_lock(name):
    _, entries = pip_section(name)
    for package, version in entries.items():
        if package in lock():
            assert version.partition("+")[0] == lock()[package], package
        else:
            assert name in ACCELERATOR_ONLY and ACCELERATOR_ONLY[name].match(package), package


@pytest.mark.parametrize("name", [path.stem for path in ENVIRONMENTS])
def test_an_environment_holds_what_its_scripts_import(name):
    scripts = scripts_of(name)
    assert scripts, f"no rule uses envs/{name}.yaml"
    for script in scripts:
        missing = packages_for(script) - pip_section(name)[1].keys()
        assert not missing, f"{script.name} imports {missing}, which envs/{name}.yaml does not have"


def loaded() -> set[str]:
    """The packages that are in use without an import of ours, each for the reason that the lists give."""
    lists = (ROOT / "requirements.lock", ROOT / "requirements-test.lock")
    return {canonicalize_name(name) for path in lists for name in LOADED.findall(path.read_text())}


@pytest.mark.parametrize("name", [path.stem for path in ENVIRONMENTS])
def test_an_environment_asks_for_nothing_that_is_not_used(name):
    used = packages_for(*scripts_of(name)) | loaded()
    assert not {package for package in asked_for(ROOT / "envs" / f"{name}.yaml") - used if package in lock()}


def test_the_lock_asks_for_what_is_used_and_no_more():
    used = packages_for(*SCRIPTS.rglob("*.py"))
    assert used <= lock().keys()
    assert asked_for(ROOT / "requirements.lock") <= used | loaded()
    used = packages_for(ROOT / "envs" / "pin.py", *(ROOT / "tests").rglob("*.py"))
    both = pin.pins(ROOT / "requirements-test.lock") | lock()
    assert used <= both.keys()
    assert asked_for(ROOT / "requirements-test.lock") <= used | loaded()


def test_every_rule_with_a_script_has_an_environment():
    assert len(environment_of_rules("cpu")) > 10
    for accelerator in ACCELERATORS:
        for rule, environment in environment_of_rules(accelerator).items():
            if (SCRIPTS / f"{rule}.py").is_file():
                assert (ROOT / "envs" / f"{environment}.yaml").is_file(), rule


def test_hardware_chooses_the_training_environment():
    for accelerator in ACCELERATORS:
        environments = environment_of_rules(accelerator)
        for rule in ("train_adapter", "evaluate_adapter", "evaluate_prompted", "inspect_prompts", "doctor"):
            assert environments[rule] == f"train-{accelerator}"


def test_training_environments_differ_only_in_the_build_of_pytorch():
    sections = {}
    for accelerator in ACCELERATORS:
        _, entries = pip_section(f"train-{accelerator}")
        sections[accelerator] = {k: v.partition("+")[0] for k, v in entries.items() if k in lock()}
    assert sections["cpu"] == sections["cuda"] == sections["rocm"]
    builds = {accelerator: pip_section(f"train-{accelerator}")[1]["torch"] for accelerator in ACCELERATORS}
    assert builds["rocm"].endswith("+rocm7.2")


def test_steps_that_only_count_or_draw_have_no_pytorch():
    for name in ("data", "analysis"):
        assert not {"torch", "transformers"} & pip_section(name)[1].keys()


@pytest.mark.parametrize("name", [path.stem for path in ENVIRONMENTS])
def test_python_and_pip_come_from_one_channel_in_exact_versions(name):
    description = yaml.safe_load((ROOT / "envs" / f"{name}.yaml").read_text())
    assert description.keys() == {"channels", "dependencies"}
    assert description["channels"] == ["conda-forge"]
    python, pip, _ = description["dependencies"]
    assert re.fullmatch(r"python=3\.1[12]\.\d+", python) and re.fullmatch(r"pip=\d+(\.\d+)+", pip)
    assert {python, pip} == set(yaml.safe_load(ENVIRONMENTS[0].read_text())["dependencies"][:2]), "all have the same"
    # Snakemake ignores the pip section of an environment that has such a file beside it.
    assert not list((ROOT / "envs").glob("*.pin.txt"))


def test_only_the_builds_of_pytorch_name_an_index():
    for path in (ROOT / "requirements.lock", ROOT / "requirements-test.lock"):
        assert "://" not in path.read_text() and "index" not in " ".join(pin.pins(path))
    for path in ENVIRONMENTS:
        options, _ = pip_section(path.stem)
        build = WHEEL_INDEXES.get(path.stem)
        assert options == ([f"--extra-index-url https://download.pytorch.org/whl/{build}"] if build else [])
