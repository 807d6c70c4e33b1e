"""The command line as a whole: help, near names, exit codes, and what is not imported."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

import stsbench as package
from stsbench.cli.app import COMMANDS, DATA_COMMANDS, NEW_COMMANDS
from stsbench.core import registry
from tests.cli.commands import HASHED, QUICK, one_line, python

SLOW = ("torch", "transformers", "scipy", "pandas", "datasets", "numba", "huggingface_hub")
HEAVY = (*SLOW, "numpy", "pyarrow")


@pytest.mark.parametrize(
    "arguments", [["--help"], [], ["data"], ["new"], ["list", "tasks"], ["list", "encoders"], ["show", "sts12"]]
)
def test_help_and_lists_import_nothing_heavy(arguments, tmp_path):
    code = (
        f"import sys; from stsbench.cli import main; code = main({arguments});"
        f"sys.stderr.write(','.join(m for m in {HEAVY} if m in sys.modules)); sys.exit(code)"
    )
    done = python("-c", code, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert len(done.out) > 100


def test_the_help_of_every_command_imports_nothing_heavy(tmp_path):
    commands = [[name] for name in COMMANDS]
    commands += [["data", name] for name in DATA_COMMANDS] + [["new", name] for name in NEW_COMMANDS]
    heavy = (*HEAVY, "msgspec", "rich")
    code = (
        f"import sys; from stsbench.cli import main; codes = {{main([*words, '-h']) for words in {commands}}};"
        f"sys.stderr.write(','.join(m for m in {heavy} if m in sys.modules)); sys.exit(max(codes))"
    )
    done = python("-c", code, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert all(f"Usage: stsbench {' '.join(words)} " in done.out for words in commands)


def test_version(stsbench):
    assert stsbench.fine("--version") == f"{package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], "No such command 'rnu'. Did you mean 'run'?"),
        (["data", "verfy"], "No such command 'verfy'. Did you mean 'verify'?"),
        (["run", "--taks", "stsb"], "No such option: --taks"),
        (["run", "stsb"], "stsb: 'stsb' is a task or a suite, not an encoder; give it by --tasks stsb"),
        (["run", "--seeds"], "Option '--seeds' requires an argument"),
        (["list", "task"], "unknown list 'task'; did you mean 'tasks'"),
        (["show", "sts122"], "unknown name 'sts122'; did you mean 'sts12'"),
        (["run", "--tasks", "sts122"], "unknown task or suite 'sts122'; did you mean 'sts12'"),
        (["run", "--tasks", "tranfer"], "unknown task or suite 'tranfer'; did you mean 'transfer'"),
        (["run", "--tasks", ","], "no task is named"),
        (["run", "--encoder", ","], "--encoder ',' is empty"),
        (["run", *QUICK, "--encoder", "minilmm"], "unknown encoder 'minilmm'; did you mean 'minilm'"),
        (["run", *QUICK, "--encoder", "transformer"], "unknown encoder 'transformer'; "),
        (["run", *QUICK, *HASHED, "--protocol", "simcs"], "unknown protocol 'simcs'; did you mean 'simcse'?"),
        (["run", *QUICK, *HASHED, "--protocol", "simcse(metrc=x)"], "protocol 'simcse' has no field 'metrc'; did you"),
        (["run", *QUICK, *HASHED, "--split", "tset"], "quickstart-en: unknown split of quickstart-en 'tset'; did you"),
        (["run", *QUICK, *HASHED, "--data", "gone"], "data folder 'gone' does not exist"),
        (["run", *QUICK, *HASHED, "--cards", "gone"], "cards folder 'gone' does not exist"),
        (["run", *QUICK, *HASHED, "--seeds", "one"], "--seeds 'one': give whole numbers, such as 0,1,2"),
        (["run", *QUICK, *HASHED, "--seeds", "0,-1"], "--seeds '0,-1': a seed is not negative"),
        (["run", *QUICK, *HASHED, "--seeds", "4294967296"], "--seeds '4294967296': a seed is not negative and below"),
        (["run", "--tasks", "quickstart-probe", *HASHED, "--split", "train"], "quickstart-probe is trained and scored"),
        (["run", *QUICK, *HASHED, "--seeds", ""], "no value is given after '--seeds'; is a variable of the shell empt"),
        (["leaderboard", "--results", "gone"], "results folder 'gone' does not exist; 'stsbench run' makes it"),
        (["leaderboard", "--suite", "stss"], "unknown suite 'stss'; did you mean 'sts'"),
        (["leaderboard", "--format", "markdwon"], "unknown format 'markdwon'; did you mean 'markdown'?"),
        (["data", "verify", "sts122"], "unknown task or suite 'sts122'; did you mean 'sts12'"),
        (["data", "verify", "--data", "gone"], "data folder 'gone' does not exist"),
        (["data", "fetch", "wiki1"], "unknown task, suite or corpus 'wiki1'; did you mean 'wiki1m'"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_with_the_nearest_name(stsbench, arguments, message):
    assert stsbench.refused(*arguments).startswith(message)


def test_a_mistyped_option_offers_the_right_one(stsbench):
    assert "--tasks" in stsbench.refused("run", "--taks", "stsb")
    assert stsbench.refused("run", "--taks", "stsb").endswith("; see 'stsbench run --help'")
    assert stsbench.refused("data", "fetch", "--taks", "stsb").endswith("; see 'stsbench data fetch --help'")
    assert stsbench.refused("rnu").endswith("; see 'stsbench --help'")


def test_a_mistyped_task_leaves_no_folder_behind(stsbench, tmp_path):
    stsbench.refused("run", *HASHED, "--tasks", "sts122")
    assert list(tmp_path.iterdir()) == []


def test_a_process_runs_a_module_of_the_folder_it_is_called_in(tmp_path, own):
    run = ["run", *QUICK, *HASHED, "--results", str(tmp_path)]
    # Python's own -m puts the folder first; an installed command has to do it itself.
    code = f"import sys; sys.path.remove(''); from stsbench.cli import main; sys.exit(main({run}))"
    done = python("-c", code, cwd=own)
    assert (done.code, done.err) == (0, "")
    assert "hashed" in done.out


def test_ctrl_c_says_how_to_go_on(stsbench, monkeypatch):
    def stop(name: str) -> EntryPoint:
        raise KeyboardInterrupt

    monkeypatch.setattr(registry, "import_module", stop)
    code, _, err = stsbench("run", *QUICK, *HASHED)
    assert code == 130
    assert one_line(err) == "stopped; what is done is kept, run the same command to resume"
