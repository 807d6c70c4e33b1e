"""The command line as a whole: help, near names, exit codes, and what is not imported."""

from __future__ import annotations

import shlex
from importlib.metadata import EntryPoint

import pytest

import stsbench as package
from stsbench.cli.app import COMMANDS, DATA_COMMANDS, NEW_COMMANDS, RESULTS_COMMANDS
from stsbench.core import registry
from tests.cli.commands import HASHED, QUICK, one_line, python, write

SLOW = ("torch", "transformers", "scipy", "pandas", "datasets", "numba", "huggingface_hub")
HEAVY = (*SLOW, "numpy", "pyarrow")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], [], ["data"], ["new"], ["list", "tasks"], ["list", "encoders"], ["show", "sts12"]],
)
def test_help_and_lists_import_nothing_heavy(arguments, tmp_path):
    code = (
        f"import sys; from stsbench.cli.main import main; code = main({arguments});"
        f"sys.stderr.write(','.join(m for m in {HEAVY} if m in sys.modules)); sys.exit(code)"
    )
    done = python("-c", code, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert len(done.out) > 100


def test_the_help_of_every_command_imports_nothing_heavy(tmp_path):
    commands = [[name] for name in COMMANDS]
    commands += [["data", name] for name in DATA_COMMANDS] + [
        ["new", name] for name in NEW_COMMANDS
    ]
    commands += [["results", name] for name in RESULTS_COMMANDS]
    heavy = (*HEAVY, "rich")
    code = (
        f"import sys; from stsbench.cli.main import main; codes = {{main([*words, '-h']) for words in {commands}}};"
        f"sys.stderr.write(','.join(m for m in {heavy} if m in sys.modules)); sys.exit(max(codes))"
    )
    done = python("-c", code, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert all(f"Usage: stsbench {' '.join(words)} " in done.out for words in commands)


def test_version(stsbench):
    assert stsbench.fine("--version") == f"{package.__version__}\n"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("rnu", "No such command 'rnu'. Did you mean 'run'?"),
        ("data verfy", "No such command 'verfy'. Did you mean 'verify'?"),
        ("run stsb", "stsb: 'stsb' is a task or a suite, not an encoder; use it as a task: --tasks stsb"),
        ("run --seeds", "Option '--seeds' requires an argument"),
        ("list task", "unknown list 'task'; did you mean 'tasks'"),
        ("show sts122", "unknown name 'sts122'; did you mean 'sts12'"),
        ("run --tasks sts122", "unknown task or suite 'sts122'; did you mean 'sts12'"),
        ("run --tasks tranfer", "unknown task or suite 'tranfer'; did you mean 'transfer'"),
        ("run --tasks ,", "no task is named"),
        ("run --encoder ,", "--encoder ',' is empty"),
        ("run QUICK --encoder minilmm", "unknown encoder 'minilmm'; did you mean 'minilm'"),
        ("run QUICK --encoder transformer", "unknown encoder 'transformer'; "),
        ("RUN --protocol simcs", "unknown protocol 'simcs'; did you mean 'simcse'?"),
        ("RUN --protocol 'simcse(metrc=x)'", "protocol 'simcse' has no field 'metrc'; did you"),
        ("RUN --split tset", "quickstart-en: unknown split of quickstart-en 'tset'; did you"),
        ("RUN --data gone", "data folder 'gone' does not exist"),
        ("RUN --cards gone", "cards folder 'gone' does not exist"),
        ("RUN --seeds one", "--seeds 'one': give whole numbers, such as 0,1,2"),
        ("RUN --seeds 0,-1", "--seeds '0,-1': a seed is not negative"),
        ("RUN --seeds 4294967296", "--seeds '4294967296': a seed is not negative and below"),
        ("run --tasks quickstart-probe HASHED --split train", "quickstart-probe is trained and scored"),
        ("leaderboard --results gone", "results folder 'gone' does not exist; 'stsbench run' makes it"),
        ("leaderboard --suite stts", "unknown suite 'stts'; did you mean 'sts'"),
        ("leaderboard --format markdwon", "unknown format 'markdwon'; did you mean 'markdown'?"),
        ("data verify sts122", "unknown task or suite 'sts122'; did you mean 'sts12'"),
        ("data verify --data gone", "data folder 'gone' does not exist"),
        ("data fetch wiki1", "unknown task, suite or corpus 'wiki1'; did you mean 'wiki1m'"),
        ("new task", "give a file or folder, or --hub OWNER/NAME, not both"),
        ("new task pairs.csv --hub owner/pairs", "give a file or folder, or --hub OWNER/NAME, not both"),
        ("new task pairs.csv --subset de", "--subset has no effect without --hub"),
        ("new encoder no", "'no' does not exist"),
        ("data overlap text.txt --out held.txt", "give a file that ends in .csv or .json"),
        ("data overlap wiki2m QUICK", "unknown corpus 'wiki2m'; did you mean 'wiki1m'"),
        ("data overlap --near 0.8", "--near has no effect without a CORPUS"),
        ("run --near 0.8", "--near has no effect without --clean"),
        ("analyze spectrm HASHED QUICK --no-store", "unknown analysis 'spectrm'; did you mean 'spectrum'?"),
        ("analyze spectrum QUICK --no-store", "no encoder is named; give some by --encoder A,B"),
        ("analyze spectrum HASHED --out a.jpg QUICK --no-store", "unknown kind of file for --out 'jpg'"),
        ("analyze similarity HASHED --set binns=3 QUICK --no-store", "analysis 'similarity': unknown key 'binns'; di"),
        ("analyze similarity HASHED --set bins=0 QUICK --no-store", "key 'bins': expected a whole number >= 2, not 0"),
        ("analyze similarity HASHED --tasks sts", "an analysis is of one task; 'sts' is 7; name one of them"),
        ("report HASHED --tasks sts", "an analysis is of one task; 'sts' is 7; name one of them"),
        ("analyze similarity -e own_encoders:Broken QUICK --no-store", "NaN or infinity"),
        ("analyze spectrum HASHED --results r QUICK --no-store", "--results has no effect for 'spectrum', which read"),
        ("analyze sweep -e simcse-small QUICK --no-store", "--no-store has no effect for 'sweep', which embeds nothi"),
        ("parity minilm minilm QUICK", "parity was given 'minilm' twice; give two encoders"),
        ("parity own_encoders:Hashed own_encoders:Broken QUICK", "returned NaN or infinity"),
        ("parity own_encoders:Hashed nobody QUICK", "unknown encoder 'nobody'"),
        ("parity own_encoders:Hashed own_encoders:ready -t nothing", "'nothing'"),
        ("parity a b --store s --no-store QUICK", "--store has no effect beside --no-store"),
        ("report HASHED --figures spectrm QUICK --suite quickstart --no-store", "unknown analysis 'spectrm'; did you"),
        ("report QUICK --suite quickstart --no-store", "no encoder is named; give some by --encoder A,B"),
        ("RUN --set size", "--set 'size': give key=value, such as pooling=cls"),
        ("RUN --set =3", "--set '=3': give key=value, such as pooling=cls"),
        ("RUN --set sise=3", "own_encoders:Hashed: encoder 'own_encoders:Hashed': unknown key 'sise'; did you mean '"),
        ("RUN --set size=big", "own_encoders:Hashed: encoder 'own_encoders:Hashed': key 'size': expected a whole num"),
        ("RUN --set size=1.5", "own_encoders:Hashed: encoder 'own_encoders:Hashed': key 'size': expected a whole num"),
        ("RUN --set \"name='..'\"", "'name' of Hashed must be a line of text without a key, for results"),
        ("RUN --name a,b", "--name gives 2 names for 1 encoder; give one name each"),
        ("RUN --name minilm", "--name 'minilm' is the name of a card or recipe; give one of your own"),
        ("RUN --name a@1", "--name 'a@1': give a line of text without @ and +"),
        ("RUN --name minilm+pooling=cls", "--name 'minilm+pooling=cls': give a line of text without @ and +"),
        ("RUN --name ..", "--name '..': give a line of text without @ and +"),
        ("leaderboard --table simcse5", "unknown table 'simcse5'; did you mean 'simcse-5'"),
        ("leaderboard --table gone.toml", "unknown table 'gone.toml'; 'stsbench list tables' lists them"),
        ("leaderboard --table sts --show publishd", "unknown choice of --show 'publishd'; did you mean 'published'?"),
        ("leaderboard --table sts --format htm", "unknown format 'htm'; did you mean 'html'"),
        ("leaderboard --table simcse-5 --show difference", "table 'simcse-5': nothing to show as 'difference', for n"),
        ("timing --format latex", "unknown format 'latex'"),
        ("timing -r sg-opt-smal", "unknown recipe 'sg-opt-smal'; did you mean 'sg-opt-small'"),
        ("timing -e own_encoders:Hashed -r fastsent-small", "trains itself and is not timed"),
        ("timing -e own_encoders:Hashed --tasks stsbb", "unknown task 'stsbb'"),
        ("timing -e own_encoders:Hashed QUICK --split no", "no"),
        ("timing --rounds 0", "rounds"),
        ("leaderboard --max-ms nan", "--max-ms nan: give a number"),
        ("compare a b --margin NaN", "--margin nan: give a number"),
        ("RUN --timeout nan", "--timeout nan: give a number"),
        ("data back-translate a b.csv --temperature nan", "--temperature nan: give a number"),
        ("RUN --variants dimensions", "--variants 'dimensions': give key=value,value, such as dimensions=256,128,64"),
        ("RUN --variants dimensions=", "--variants 'dimensions=': give key=value,value"),
        ("RUN --variants dimension=4", "unknown key of --variants 'dimension'; did you mean 'dimensions'?"),
        ("RUN --variants dimensions=4,x", "--variants: key 'dimensions': expected a whole number, not 'x'"),
        ("RUN --variants dimensions=0", "key 'dimensions': expected a whole number >= 1, not 0"),
        ("RUN --variants embeddings=int4", "'int4' is not one of float32, int8, uint8, binary, ubinary; did you mean"),
        ("RUN --variants dimensions=4 --variants dimensions=2", "--variants dimensions is given twice"),
        ("RUN --variants dimensions=4 --set dimensions=2", "--set and --variants both give 'dimensions'"),
        ("RUN --variants dimensions=4 --no-store", "--no-store has no effect beside --variants"),
        ("RUN --variants dimensions=4 --name a", "--name has no effect beside --variants"),
        ("RUN --plot a.svg", "--plot has no effect without --variants"),
        ("RUN --variants dimensions=4 --plot a.gif", "--plot 'a.gif': give a file that ends in .svg, .png, .pd"),
        ("run HASHED own_encoders:ready QUICK --name a,a", "--name 'a' is given twice; results of two encoders would"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_the_nearest_name(stsbench, line, says):
    short = {"RUN": ["run", *QUICK, *HASHED], "QUICK": QUICK, "HASHED": HASHED}
    assert says in stsbench.refused(
        *(word for one in shlex.split(line) for word in short.get(one, [one]))
    )


def test_a_mistyped_option_offers_the_right_one(stsbench):
    assert "--tasks" in stsbench.refused("run", "--taks", "stsb")
    assert stsbench.refused("run", "--taks", "stsb").endswith("; see 'stsbench run --help'")
    assert stsbench.refused("data", "fetch", "--taks", "stsb").endswith(
        "; see 'stsbench data fetch --help'"
    )
    assert stsbench.refused("rnu").endswith("; see 'stsbench --help'")


def test_a_mistyped_task_leaves_no_folder_behind(stsbench, tmp_path):
    stsbench.refused("run", *HASHED, "--tasks", "sts122")
    assert list(tmp_path.iterdir()) == []


def test_a_process_runs_a_module_of_the_folder_it_is_called_in(tmp_path, own):
    run = ["run", *QUICK, *HASHED, "--results", str(tmp_path)]
    # Python's own -m puts the folder first; an installed command has to do it itself.
    code = f"import sys; sys.path.remove(''); from stsbench.cli.main import main; sys.exit(main({run}))"
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


@pytest.mark.parametrize("line", ["train angle-small", "sweep rates.toml"])
def test_that_a_base_is_missing_is_said_before_torch_is_loaded(line, tmp_path):
    rates = 'name = "Rates"\nrecipes = ["angle-small"]\n[values]\nlearning_rate = [1e-5, 2e-5]\n'
    write(tmp_path / "rates.toml", f'{rates}[decide]\ntask = "stsb"\nsplit = "validation"\n')
    code = f"import sys; from stsbench.cli.main import main; print(main({line.split()}), 'torch' in sys.modules)"
    done = python("-c", code, cwd=tmp_path)
    assert done.out == "2 False\n" and "; pass --base FOLDER" in one_line(done.err)
