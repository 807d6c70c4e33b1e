"""Passwords and keys among parameters: used, and neither written nor printed; a run without them can be repeated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stsbench.cli.main import main
from stsbench.core import settings
from stsbench.core.secrets import redact, redact_text
from tests.cli.commands import QUICK, write

MODULE = '''
import own_encoders


class Remote(own_encoders.Hashed):
    """Takes what a class that asks a server takes."""

    def __init__(self, url: str = "", api_key: str | int = "", headers: dict | None = None, size: int = 8):
        super().__init__(size)
        if "refuses" in url:
            raise ConnectionError(f"no answer from {url} with Authorization: Bearer {api_key}")
        assert "REDACTED" not in f"{url}{api_key}{headers}"
'''
SECRETS = ("password-77", "query-77", "parameter-77", "header-77")
ADDRESS = f"url=http://me:{SECRETS[0]}@host/v1?model=m&access_token={SECRETS[1]}&v=2"
SET = (
    "--set",
    ADDRESS,
    "--set",
    f"api_key={SECRETS[2]}",
    "--set",
    f"headers={{X-Auth = '{SECRETS[3]}'}}",
)
NAME = (
    "hashed+api_key=REDACTED+headers={'X-Auth': 'REDACTED'}+size=4"
    "+url=http://REDACTED@host/v1?model=m&access_token=REDACTED&v=2"
)


@pytest.fixture(autouse=True)
def remote(stsbench, tmp_path: Path) -> None:
    write(tmp_path / "remote.py", MODULE)


def leaks(*texts: str) -> set[str]:
    """The secrets in texts, in names of files, and in files that were written here and in the cache."""
    paths = [path for folder in (Path.cwd(), settings.cache_folder()) for path in folder.rglob("*")]
    contents = [path.read_bytes().decode("latin-1") for path in paths if path.is_file()]
    return {
        secret
        for secret in SECRETS
        for text in (*texts, *map(str, paths), *contents)
        if secret in text
    }


def test_a_run_neither_writes_nor_prints_a_secret_and_can_be_repeated(stsbench):
    run = ("run", "-e", "remote:Remote", *QUICK, *SET, "--set", "size=4")
    for form in ("--dry-run", "--json", "--verbose", "--fresh"):
        code, out, err = stsbench(*run, form)
        assert (code, leaks(out, err)) == (0, set()), err
    (path,) = Path("results").glob("*/*.json")
    assert json.loads(path.read_text())["encoder"] == NAME
    assert "hashed+" in stsbench.fine("leaderboard", "--suite", "quickstart", "-e", NAME)
    again = ("run", "--config", "results/run.toml")
    assert stsbench.refused(*again).startswith(
        "--set: url: REDACTED stands for a secret, which is never written; type"
    )
    assert "--encoder remote:Remote: api_key: REDACTED stands" in stsbench.refused(
        "run", "-e", NAME.replace("hashed", "remote:Remote")
    )
    stsbench.fine(*again, *SET)
    assert "1 of 1 cells known" in stsbench.progress[0] and not leaks(*stsbench.progress)


def test_a_secret_distinguishes_encoders_all_the_same(stsbench):
    scores = set()
    for key in ("parameter-77", "parameter-78", "1234567877"):
        stsbench.fine("run", "-e", "remote:Remote", *QUICK, "--set", f"api_key={key}")
        assert "0 of 1 cells known" in stsbench.progress[0]
        scores |= {path.name for path in Path("results", "hashed+api_key=REDACTED").glob("*.json")}
    assert len(scores) == 3 and not leaks()
    assert not any(
        "1234567877" in path.read_text()
        for path in Path("results").rglob("*.*")
        if path.suffix != ".parquet"
    )


@pytest.mark.parametrize(
    "words",
    [
        (
            "-e",
            "remote:Remote",
            "--set",
            f"url=http://me:{SECRETS[0]}@refuses",
            "--set",
            f"api_key={SECRETS[2]}",
        ),
        ("-e", f"remote:Remote+url=http://me:{SECRETS[0]}@refuses+api_key={SECRETS[2]}"),
        ("-e", f"remote:Remoter+url=http://me:{SECRETS[0]}@host+api_key={SECRETS[2]}"),
        ("-e", f"nothing+url=http://me:{SECRETS[0]}@host+api_key={SECRETS[2]}"),
        ("-e", "remote:Remote", "--set", f"api_key=['{SECRETS[2]}']"),
        ("-e", "remote:Remote", "--set", f"size=http://me:{SECRETS[0]}@host"),
        ("-e", "remote:Remote", "--sett", f"url=http://me:{SECRETS[0]}@host"),
        ("-e", "remote:Remote", "--tasks", f"http://me:{SECRETS[0]}@host"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_error_shows_no_secret(capsys, words, form):
    code = main(["run", *QUICK, *words, *form])
    out, err = capsys.readouterr()
    assert code in (2, 3) and err and not leaks(out, err)
    if "Remote:" not in err and "refuses" in str(words):
        assert "no answer from http://REDACTED@refuses with Authorization: Bearer REDACTED" in err


def test_a_recipe_holds_no_secret_and_a_cards_is_not_shown(stsbench, tmp_path):
    refused = stsbench.refused(
        "train", "simcse-small", "--set", f"url=http://me:{SECRETS[0]}@host", "--dry-run"
    )
    assert (
        "'url' holds a secret, which would be written beside what is trained" in refused
        and not leaks(refused)
    )
    card = (
        'name = "Ours"\nkind = "remote:Remote"\nmethod = "none"\nbackbone = "none"\nsupervision = "pairs"\n'
        'overlap = "unknown"\npaper = "none"\nlicense = "none"\n'
        f'params = {{api_key = "{SECRETS[2]}", url = "http://me:{SECRETS[0]}@host"}}\n'
    )
    own = write(tmp_path / "own" / "baselines" / "ours.toml", card).parent.parent
    shown = [stsbench.fine("show", "ours", "--cards", own, *form) for form in ((), ("--json",))]
    assert all(
        "http://REDACTED@host" in text and not {*SECRETS} & {*text.split('"')} for text in shown
    )
    assert not any(secret in text for text in shown for secret in SECRETS)


@pytest.mark.parametrize(
    "text",
    [
        "minilm+pooling=max+prompt='a key: b'",
        "https://openreview.net/forum?id=abc&v=2",
        "https://medium.com/@name/post",
        "hf-internal-testing/tiny-random-bert2",
        "runs/sk-learn-model-2024-11-05/seed0",
        "me@host.org asks for the token",
        "x+mask_token=[M]",
    ],
)
def test_what_is_no_secret_stays(text):
    assert redact_text(text) == text
    params = {
        "mask_token": "[M]",
        "key_variable": "MY_KEY",
        "revision": "a" * 39 + "1",
        "sha256": {"f": "1" * 64},
    }
    assert redact(params) == params
