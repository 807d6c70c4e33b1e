"""Names of code come from who runs the command, never from data: checkpoints, data sets, what lies in the folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stsbench.core.errors import StsbenchError
from tests.cli.commands import ENCODER, OWN_ENCODERS, PAIR_TABLE, make_own, process, python, write
from tests.cli.conftest import own, stsbench
from tests.hub_files import tiny_bert

__all__ = ["own", "stsbench"]

QUICK = ("run", "--tasks", "quickstart-es-en")


def made(folder: Path, saved: object = None, **files: str | bytes) -> Path:
    """A checkpoint with what it says of itself; ``__`` in a file's name is the dot."""
    for name, content in {**tiny_bert(), **files}.items():
        write(folder / name.replace("__", "."), content)
    if saved is not None:
        write(folder / "stsbench.json", saved if isinstance(saved, str) else json.dumps(saved))
    return folder


RUNS = {"base": "os:system", "base_params": {"command": "touch ran"}, "model": ""}


@pytest.mark.parametrize(
    "saved",
    [
        {"kind": "whitening", "params": RUNS},
        {"kind": "flow", "params": RUNS},
        {"kind": "token_removal", "params": {**RUNS, "k": 1}},
        {"kind": "whitening", "params": {"base": "minilm-whitening", "base_params": RUNS}},
        {"kind": "whitening", "params": {"base": "evil.toml"}},
        {"kind": "os:system", "params": {"command": "touch ran"}},
        {"kind": "use", "params": {}},
    ],
    ids=lambda saved: f"{saved['kind']} {list(saved['params'].values())[:1]}",
)
def test_a_checkpoint_names_no_code_and_no_other_encoder(stsbench, tmp_path, saved):
    write(
        tmp_path / "evil.toml",
        f'{ENCODER.replace("own_encoders:Hashed", "os:system")}params = {{command = "touch ran"}}',
    )
    folder = made(tmp_path / "evil", saved)
    error = stsbench.refused(*QUICK, "--encoder", folder)
    assert f"unknown kind of saved encoder '{saved['kind']}'" in error
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "key", ["model", "package", "revision", "subfolder", "name", "catalogue", "device", "vectors"]
)
def test_a_checkpoint_does_not_say_where_it_lies_or_what_it_is_called(stsbench, tmp_path, key):
    folder = made(tmp_path / "evil", {"kind": "transformer", "params": {key: "x"}})
    assert (
        f"stsbench.json: the params say '{key}', which is not for a checkpoint to say"
        in stsbench.refused(*QUICK, "--encoder", folder)
    )


DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"stsbench__json": DEEP}, "stsbench.json: cannot be read"),
        ({"stsbench__json": f'{{"kind": "transformer", "params": {{"pooling": {"[" * 5000}{"]" * 5000}}}}}'}, "stsbench.json"),
        ({"stsbench__json": b"\xff\xfe"}, "stsbench.json: cannot be read"),
        ({"stsbench__json": '{"kind": ["transformer"]}'}, "stsbench.json: cannot be read"),
        ({"stsbench__json": '{"kind": "transformer", "params": {"pooling": 3}}'}, "key 'pooling'"),
        ({"stsbench__json": '{"kind": "transformer", "params": {"pooling": null}}'}, "key 'pooling'"),
        ({"stsbench__json": '{"kind": "transformer", "params": {"k": 3}}'}, "unknown key 'k'"),
        ({"config__json": DEEP}, "config.json: cannot be read as JSON"),
        ({"modules__json": DEEP}, "modules.json: is not a list of modules"),
        ({"modules__json": "{}"}, "modules.json: is not a list of modules"),
        ({"modules__json": '["x"]'}, "modules.json: is not a list of modules"),
        ({"modules__json": '[{"type": 1, "path": ""}]'}, "modules.json: is not a list of modules"),
        ({"modules__json": '[{"type": "x"}]'}, "modules.json: is not a list of modules"),
        ({"modules__json": '[{"type": "os.system", "path": "\\u0000"}]'}, "is no folder inside the checkpoint"),
        ({"modules__json": json.dumps([{"type": "x", "path": "p" * 5000}])}, "is no folder inside the checkpoint"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_a_checkpoint_says_of_itself_may_be_any_json(stsbench, tmp_path, files, said):
    assert said in stsbench.refused(*QUICK, "--encoder", made(tmp_path / "odd", **files))


MODULES = json.dumps(
    [
        {"type": "sentence_transformers.models.Transformer", "path": ""},
        {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"},
    ]
)
ODD: list[Any] = [None, 3, -1.5, "x", [], ["a"], {}, {"a": 1}, True, 10**400]


@pytest.mark.parametrize("value", ODD, ids=lambda value: str(value)[:10])
@pytest.mark.parametrize(
    ("file", "key"),
    [
        ("config_sentence_transformers.json", "prompts"),
        ("config_sentence_transformers.json", "default_prompt_name"),
        ("config_sentence_transformers.json", "model_type"),
        ("1_Pooling/config.json", "pooling_mode"),
        ("1_Pooling/config.json", "include_prompt"),
        ("1_Pooling/config.json", "module_output_name"),
        ("sentence_bert_config.json", "max_seq_length"),
        ("tokenizer_config.json", "padding_side"),
        ("config.json", "max_position_embeddings"),
        ("config.json", "architectures"),
    ],
)
def test_how_a_checkpoint_is_run_may_be_of_any_type(tmp_path, file, key, value):
    from stsbench.encoders.described import plain_transformer_params, read_modules

    folder = made(tmp_path / "odd", modules__json=MODULES)
    for name in (
        "1_Pooling/config.json",
        "config_sentence_transformers.json",
        "sentence_bert_config.json",
    ):
        write(folder / name, "{}")
    facts = json.loads((folder / file).read_text()) if (folder / file).is_file() else {}
    write(folder / file, json.dumps({**facts, key: value}))
    for read in (plain_transformer_params, read_modules):
        try:
            read(folder)
        except StsbenchError as error:
            assert str(folder) in str(error)


@pytest.mark.parametrize(
    ("kind", "file", "facts"),
    [
        ("os.path", "config.json", {}),
        ("sentence_transformers.SentenceTransformer", "config.json", {}),
        ("sentence_transformers.util.import_from_string", "config.json", {}),
        (
            "sentence_transformers.models.Dense",
            "config.json",
            {"activation_function": "torch.hub.load"},
        ),
        (
            "sentence_transformers.models.Router",
            "router_config.json",
            {"types": {"a": "evil.Code"}},
        ),
        (
            "sentence_transformers.models.Asym",
            "config.json",
            {"types": {"../a": "sentence_transformers.models.Dense"}},
        ),
        ("sentence_transformers.models.Router", "router_config.json", {"types": 3}),
    ],
)
def test_a_module_names_no_code_but_the_librarys_modules(tmp_path, kind, file, facts):
    from stsbench.encoders.described import read_modules

    listed = [{"type": kind, "path": "1_Module"}]
    folder = made(tmp_path / "evil", modules__json=json.dumps(listed))
    write(folder / "1_Module" / file, json.dumps(facts))
    with pytest.raises(StsbenchError, match="never run|no table 'types'|is no folder inside"):
        read_modules(folder)


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ("nope", "package 'nope' is not installed"),
        ("nope.pkg", "package 'nope.pkg' is not the name of an installed package"),
        (".x", "package '.x' is not the name"),
        ("__main__", "package '__main__' is not the name"),
        ("x" * 5000, "is not the name of an installed package"),
        ("xml.dom", "package 'xml.dom' is not the name"),
        ("sys", "package 'sys' is not installed"),
    ],
)
def test_a_package_is_named_and_never_imported(stsbench, tmp_path, package, said):
    cards = make_own(tmp_path).cards
    card = ENCODER.replace("own_encoders:Hashed", "transformer")
    write(cards / "baselines" / "packed.toml", f'{card}[params]\npackage = "{package}"\n')
    assert said in stsbench.refused(*QUICK, "--encoder", "packed", "--cards", cards)
    code, out, err = stsbench("show", "packed", "--cards", cards)
    assert (code, "Traceback" in err) == ((0, False) if "not installed" in said else (2, False)), (
        out
    )


@pytest.mark.parametrize("key", ["name", "catalogue"])
@pytest.mark.parametrize("encoder", ["minilm", "minilm-whitening", "checkpoint"])
def test_what_we_tell_an_encoder_is_no_parameter(stsbench, tmp_path, encoder, key):
    spec = str(made(tmp_path / "tiny")) if encoder == "checkpoint" else encoder
    assert f"'{key}' cannot be set" in stsbench.refused(
        *QUICK, "--encoder", spec, "--set", f"{key}=x"
    )


# --- callables that are of another kind ---

OTHERS = [
    "os:system",
    "subprocess:run",
    "subprocess:Popen",
    "shutil:rmtree",
    "builtins:print",
    "os:environ",
    "math:pi",
]


@pytest.mark.parametrize("address", OTHERS)
def test_what_is_of_another_kind_is_refused_before_it_is_called(stsbench, tmp_path, address):
    from stsbench.training.methods.registry import METHODS

    own = make_own(tmp_path)
    task = f'evaluator = "{address}"\noptions = {{command = "touch ran"}}'
    write(own.cards / "tasks" / "evaluated.toml", PAIR_TABLE.replace('evaluator = "sts"', task))
    write(
        own.cards / "tasks" / "read.toml",
        PAIR_TABLE.replace('reader = "pair_table"', f'reader = "{address}"'),
    )
    card = ENCODER.replace("own_encoders:Hashed", address) + '[params]\ncommand = "touch ran"\n'
    write(own.cards / "baselines" / "odd.toml", card)
    for kind, options, wanted in (
        (
            "evaluator",
            ("--tasks", "evaluated", "--encoder", "own_encoders:Hashed"),
            "give a class of evaluators",
        ),
        (
            "reader",
            ("--tasks", "read", "--encoder", "own_encoders:Hashed"),
            "give a function (files, **params)",
        ),
        ("encoder kind", (*QUICK[1:], "--encoder", "odd"), ""),
        ("encoder kind", (*QUICK[1:], "--encoder", address, "--set", "command=touch ran"), ""),
    ):
        error = stsbench.refused("run", *options, *own.options())
        assert f"{kind} '{address}' is " in error and wanted in error
    with pytest.raises(StsbenchError, match=f"^method '{address}' is .*; give a class of Learner"):
        METHODS.load(address)
    assert not (tmp_path / "ran").exists()


def test_a_function_may_make_an_encoder(stsbench, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    code = "from own_encoders import Hashed\ndef make(size: int = 4) -> Hashed: return Hashed(size)\ndef number() -> int: ..."
    write(tmp_path / "own_functions.py", code)
    assert stsbench.fine(*QUICK, "--encoder", "own_functions:make").startswith("hashed\n")
    assert "is of type function; give" in stsbench.refused(
        *QUICK, "--encoder", "own_functions:number"
    )


# --- the current folder ---

TRAP = "open('ran', 'a').write(__name__)\nraise ImportError('this is no library')\n"


def test_no_library_is_taken_from_the_current_folder(tmp_path):
    for name in ("pydot", "cython", "Cython", "typer", "msgspec", "rich", "own_encoders_"):
        write(tmp_path / f"{name}.py", TRAP)
    # By python -m, and as an installed command starts: without the current folder.
    code = "import sys; sys.path.remove(''); from stsbench.cli.main import main; sys.exit(main(['list', 'suites']))"
    for done in (process("list", "suites", cwd=tmp_path), python("-c", code, cwd=tmp_path)):
        assert (done.code, done.err) == (0, "") and "quickstart" in done.out
    assert not (tmp_path / "ran").exists()


def test_a_module_of_the_current_folder_is_found_by_its_name_and_the_folder_not_left_on_the_path(
    tmp_path,
):
    write(tmp_path / "here_encoders.py", f"import here_helper{OWN_ENCODERS}")
    write(tmp_path / "here_helper.py", "")
    write(tmp_path / "later.py", TRAP)
    write(tmp_path / "lost.py", "raise SystemExit")
    code = (
        "import sys; sys.path.remove(''); from stsbench.core.registry import Registry; r = Registry('kind', {}, group='g');"
        "before = list(sys.path); print(r.load('here_encoders:Hashed').__name__); assert sys.path == before;"
        "import importlib.util; assert importlib.util.find_spec('later') is None"
    )
    done = python("-c", code, cwd=tmp_path)
    assert (done.code, done.out, done.err) == (0, "Hashed\n", "")
