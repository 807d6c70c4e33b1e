"""An encoder behind a server: what is asked and checked, what fails and is tried again, what is kept."""

from __future__ import annotations

import base64
import copy
import json
import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stsbench.bench.embedder import open_store
from stsbench.core import settings
from stsbench.core.errors import CardError, EncoderError, SourceError, StsbenchError, UnknownName
from stsbench.core.parameters import call_with_params
from stsbench.encoders.base import ServedEncoder
from stsbench.encoders.engine.embed import BatchShare, Engine
from stsbench.encoders.served import client
from stsbench.encoders.served.openai import PROBE_TEXT, OpenAIEncoder
from tests.encoders.served.server import Server, serving

OTHERWISE = r"embeds a text otherwise when it is asked for again \(.*another order, or its model has changed; nothing that"
TEXTS = [f"sentence {'number ' * (i % 7)}{i}" for i in range(50)]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(client, "FIRST_WAIT", 0.001)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


def encoder(server: Server, **params: Any) -> OpenAIEncoder:
    return OpenAIEncoder("m", **{"url": server.url, "batch": 8, **params})


def engine_of(made: OpenAIEncoder, store: Path) -> Engine:
    return Engine(made, open_store(store, made))


def expected(server: Server, texts: list[str], size: int = 8) -> Any:
    return np.array(server.rows(texts, size), np.float32)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"encoding": "base64"},
        {"api": "tei"},
        {"dimensions": 5},
        {"api": "tei", "dimensions": 5},
    ],
)
def test_embeddings_come_in_the_order_of_the_sentences(server, params):
    made = encoder(server, **params)
    assert isinstance(made, ServedEncoder)
    # Whatever their order in the answer.
    server.fail(
        change=lambda answer: {"data": answer["data"][::-1]} if isinstance(answer, dict) else answer
    )
    np.testing.assert_array_equal(
        made.encode(TEXTS), expected(server, TEXTS, params.get("dimensions", 8))
    )
    assert {*server.texts} == {*TEXTS} and len(server.again) <= len(server.answered) + 1
    assert max(map(len, server.answered)) <= 8


def test_a_request_holds_what_is_asked_for(server):
    encoder(server, prompt="query: ", dimensions=4, body={"input_type": "query"}).encode(["a"])
    (asked,) = server.asked
    own = {"model": "m", "input": ["query: a"], "encoding_format": "float", "dimensions": 4}
    assert asked == {**own, "input_type": "query"}
    encoder(server, api="tei", body={"normalize": False}).encode(["a"])
    assert server.asked[-1] == {"inputs": ["a"], "normalize": False}


def test_blank_sentences_are_not_sent_and_are_zero(server):
    found = encoder(server).encode(["", "a dog", " \n"])
    assert server.texts == ["a dog"]
    assert not found[[0, 2]].any() and found[1].any()
    assert encoder(server).encode([]).shape == encoder(server).encode([""])[:0].shape == (0, 8)
    # Half a pair of signs cannot be sent.
    assert np.isfinite(encoder(server).encode(["half \ud83d"])).all()


def replaced(**new: Any) -> Any:
    def change(answer: dict[str, Any]) -> dict[str, Any]:
        first, *others = answer["data"]
        return {"data": [{**first, **new}, *others]}

    return change


NAN = base64.b64encode(np.array([np.nan] * 8, "<f4").tobytes()).decode()


def same(answer: Any) -> Any:
    return {"data": [{**row, "embedding": [1.0] * 8} for row in answer["data"]]}


@pytest.mark.parametrize(
    ("change", "message", "params"),
    [
        (same, "size 8, not the 4 of 'dimensions': .* leave dimensions out", {"dimensions": 4}),
        (lambda rows: rows[1:], "holds 7 embeddings for 8 texts", {"api": "tei"}),
        (lambda answer: {"data": answer["data"][1:]}, "holds 7 embeddings for 8 texts", {}),
        (replaced(index=1), "'index' is not 0 to 7", {}),
        (replaced(index="0"), "not as it must be", {}),
        (replaced(embedding=[1.0] * 7), "sizes 7, 8", {}),
        (replaced(embedding=[]), "sizes 0, 8", {}),
        (replaced(embedding=[None] * 8), "returned null for sentence ", {}),
        (replaced(embedding=None), "returned null for sentence ", {}),
        (lambda rows: [None, *rows[1:]], "returned null for sentence ", {"api": "tei"}),
        (
            lambda rows: [None] * len(rows),
            "holds null in the place of every embedding",
            {"api": "tei"},
        ),
        (replaced(embedding=[float("nan")] * 8), "returned NaN or infinity", {}),
        (replaced(embedding=[1e99] * 8), "returned NaN or infinity", {}),
        (replaced(embedding=NAN), "returned NaN or infinity", {}),
        (replaced(embedding="*"), "not as it must be", {}),
        (replaced(embedding=["a"] * 8), "not as it must be", {}),
        (lambda answer: {"error": "nothing"}, "not as it must be", {}),
        (lambda answer: [], "not as it must be", {}),
    ],
)
def test_a_wrong_answer_is_refused(server, change, message, params):
    server.fail(change=change)
    with pytest.raises(EncoderError, match=message):
        encoder(server, **params).encode(TEXTS)


def test_wrong_order_under_right_indices_is_refused(server, tmp_path):
    def turned(answer: Any) -> Any:
        pairs = zip(answer["data"], answer["data"][::-1], strict=True)
        return {"data": [{**row, "embedding": other["embedding"]} for row, other in pairs]}

    server.fail(change=turned)
    made = encoder(server)
    engine = engine_of(made, tmp_path)
    with pytest.raises(EncoderError, match=OTHERWISE):
        engine.prepare(TEXTS)
    # Nothing of it is kept, no more than two requests are paid, and one text at a time is as it should be.
    assert len(engine.missing_texts(TEXTS)) == len(TEXTS) and len(server.answered) == 2
    np.testing.assert_array_equal(
        encoder(server, batch=1).encode(TEXTS[:3]), expected(server, TEXTS[:3])
    )


def test_the_first_text_the_last_and_an_inner_one_of_each_request_are_asked_again(server):
    encoder(server, in_flight=1).encode(TEXTS)
    first, alone, *others, last = server.answered
    assert len(first) == 8 and PROBE_TEXT in first and {*alone} < {*first} and {*alone} < {*last}
    # An inner text of each but the last, which has none, and the first text and the last at the end.
    assert len(server.again) == len([first, *others]) - 1 + 3
    # Rounding may move an embedding.
    server.fail(
        change=lambda answer: (
            [[value * 1.01 for value in row] for row in answer] if len(answer) > 1 else answer
        )
    )
    assert encoder(server, api="tei").encode(TEXTS).shape == (50, 8)


def other_weights(answer: Any) -> Any:
    """The answer of another model under the same name."""
    return {"data": [{**row, "embedding": row["embedding"][::-1]} for row in answer["data"]]}


def exchanged(answer: Any) -> Any:
    """An answer with its embeddings in another order, but for the first and the last."""
    first, *inner, last = (row["embedding"] for row in answer["data"])
    rows = [first, *inner[1:], *inner[:1], last]
    return {
        "data": [
            {**row, "embedding": other} for row, other in zip(answer["data"], rows, strict=True)
        ]
    }


def after(requests: int, change: Any) -> Any:
    counted = count()
    return lambda answer: (
        change(answer) if next(counted) >= requests and len(answer["data"]) > 2 else answer
    )


@pytest.mark.parametrize(
    "change", [after(4, other_weights), after(0, exchanged), after(4, exchanged)]
)
@pytest.mark.parametrize("in_flight", [1, 4])
def test_embeddings_that_a_server_makes_in_two_ways_are_not_believed(
    server, tmp_path, change, in_flight
):
    # Some are there from a run before, which nothing was wrong with.
    engine_of(encoder(server), tmp_path).prepare(TEXTS[:20])
    before, paid = encoder(server).fingerprint, len(server.answered)
    server.fail(change=change)
    made = encoder(server, in_flight=in_flight)
    engine = engine_of(made, tmp_path)
    with pytest.raises(EncoderError, match=OTHERWISE):
        engine.prepare(TEXTS)
    assert len(server.answered) - paid < 4 + 2 + 2 * in_flight
    assert before != made.fingerprint == encoder(server).fingerprint
    # Not under the fingerprint of before either, should what was seen be lost with the cache.
    shutil.rmtree(settings.cache_folder() / "served")
    assert (
        len(engine.missing_texts(TEXTS))
        == len(engine_of(encoder(server), tmp_path).missing_texts(TEXTS))
        == len(TEXTS)
    )
    server.faults.clear()
    np.testing.assert_array_equal(
        np.asarray(engine_of(encoder(server), tmp_path)(TEXTS)), expected(server, TEXTS)
    )


def test_a_model_that_has_changed_between_two_runs_is_noticed_before_anything_is_stored(
    server, tmp_path
):
    def stop(done: int, total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    made = encoder(server, in_flight=1)
    with pytest.raises(KeyboardInterrupt):
        Engine(made, open_store(tmp_path, made), on_progress=stop).prepare(TEXTS)
    server.fail(change=other_weights)
    paid = len(server.answered)
    with pytest.raises(EncoderError, match=OTHERWISE):
        engine_of(encoder(server), tmp_path).prepare(TEXTS)
    assert len(server.answered) == paid + 1
    found = np.asarray(engine_of(encoder(server), tmp_path)(TEXTS))
    np.testing.assert_array_equal(found, expected(server, TEXTS)[:, ::-1])


def test_a_model_that_changes_its_name_in_mid_run_stops_it(server, tmp_path):
    models = iter([*["m-1"] * 4, *["m-2"] * 9])
    server.fail(change=lambda answer: {**answer, "model": next(models)})
    made = encoder(server, in_flight=1)
    engine = engine_of(made, tmp_path)
    with pytest.raises(
        EncoderError, match="answered as model 'm-1', and now as 'm-2': it was changed in mid-run"
    ):
        engine.prepare(TEXTS)
    assert "its answers name 'm-1'" in made.notes[0] and len(engine.missing_texts(TEXTS)) == 50
    # Another process, whose embeddings are all stored, says so too.
    assert "its answers name 'm-1'" in encoder(server).notes[0]


@pytest.mark.parametrize(
    "start", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"], ids=["headers", "body"]
)
def test_a_request_has_a_total_time(start):
    def drip() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listener.accept()
                connection.sendall(start or b"HTTP/1.1 200 OK\r\nX-Long: ")
                with connection, suppress(OSError):
                    while not over.wait(0.02):
                        connection.sendall(b"1")

    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        made = OpenAIEncoder(
            "m", url=f"http://127.0.0.1:{listener.getsockname()[1]}/v1", timeout=0.3, retries=1
        )
        stop = threading.Event()
        began = time.monotonic()
        with pytest.raises(SourceError, match="in 2 attempts: .* 0.3 s "):
            made.request(["a"], stop)
        assert 0.5 < time.monotonic() - began < 5
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 429, "body": b'{"error": {"message": "slow down"}}'},
        {"status": 503, "body": b"<html>"},
        {"status": 529, "body": b""},
        {"cut": True},
        {"stall": 0.4},
    ],
)
def test_what_may_pass_is_tried_again(server, fault):
    server.fail(times=3, **fault)
    found = encoder(server, timeout=0.2, in_flight=2).encode(TEXTS)
    np.testing.assert_array_equal(found, expected(server, TEXTS))


SECRET = 'Patient Müller, born 1961, has "chronic" pain'


@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"message": f"input '{SECRET}' is too long for m"}},
        {"error": {"message": f"input '{SECRET[:30]}…' is too long for m"}},
        {"detail": [{"loc": ["body", "input"], "msg": "too long for m", "input": [SECRET]}]},
        {"message": f"bad request {json.dumps({'input': SECRET})}: too long for m"},
        f"<p>{SECRET} is too long for m</p>",
    ],
)
@pytest.mark.parametrize("status", [400, 200, 413, 503])
def test_an_error_that_quotes_its_input_shows_no_sentence(server, answer, status):
    body = answer if isinstance(answer, str) else json.dumps(answer)
    server.fail(status=status, body=(body if status != 200 else json.dumps(body)).encode())
    with pytest.raises((EncoderError, SourceError), match="for m") as caught:
        encoder(server, retries=0, prompt="query: ").encode([SECRET])
    words = ("Patient", "ller", "1961", "chronic", "pain")
    message = str(caught.value).replace(server.url, "")  # a port may hold the same digits
    assert not any(word in message for word in words) and "[…]" in message


def test_a_short_sentence_is_not_quoted_either(server):
    server.fail(status=400, body=b'{"error": "bad model for \'my cat\' (8 tokens)"}')
    with pytest.raises(EncoderError, match=r"400: .* for '\[…\]' \(8 tokens\)$"):
        encoder(server).encode(["my cat"])


def test_a_server_that_lists_no_models_answers_all_the_same(server):
    for status in (200, 404, 501):
        server.models_status = status
        assert encoder(server, name=str(status)).encode(TEXTS[:1]).shape == (1, 8)
    server.models_status = 503
    assert len(server.asked) == 3


@pytest.mark.parametrize("date", [False, True])
def test_nobody_asks_before_the_time_that_the_server_names(server, date):
    until = datetime.now(UTC) + timedelta(seconds=3)
    named = format_datetime(until, usegmt=True) if date else "1.5"
    server.fail(status=429, body=b"{}", headers={"Retry-After": named}, times=1)
    encoder(server, in_flight=1).encode(TEXTS)
    refused, again = server.times[:2]
    assert again - refused >= 1.4
    server.fail(status=429, body=b"{}", headers={"Retry-After": "3600"})
    began = time.monotonic()
    with pytest.raises(SourceError, match="wait 3600 s "):
        encoder(server).encode(TEXTS)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    ("fault", "message", "requests"),
    [
        (
            {"status": 400, "body": b'{"error": {"message": "bad model"}}'},
            "answered 400: bad model",
            1,
        ),
        ({"status": 404, "body": b'{"detail": "Not Found"}'}, "ends in /v1", 1),
        ({"status": 429, "body": b'{"error": {"code": "insufficient_quota"}}'}, "answered 429", 1),
        (
            {"status": 500, "body": b"down"},
            "no embeddings in 3 attempts: 500 down; what has come is kept: "
            "run the same command to continue$",
            3,
        ),
        (
            {"status": 429, "body": b'"slow down"', "headers": {"Retry-After": "3600"}},
            r"asks to wait 3600 s \(429 slow down\); what has come is kept",
            1,
        ),
        (
            {"status": 401, "body": b'"no key"'},
            "answered 401: no key; put a key into an environment variable and name that: "
            "`params=key_variable=NAME`$",
            1,
        ),
        (
            {"status": 307, "headers": {"Location": "http://127.0.0.1:1/"}, "body": b"moved"},
            "answered 307",
            1,
        ),
        ({"body": b"<html>please log in</html>"}, "answered no JSON: <html>please", 1),
        ({"stall": 0.5}, r"no answer in 0.1 s \(`params=timeout=SECONDS` waits longer\)", 3),
    ],
)
def test_what_does_not_pass_is_one_line(server, fault, message, requests):
    server.fail(**fault)
    with pytest.raises((EncoderError, SourceError), match=message) as caught:
        # Only a server that stalls needs a short time limit, which a busy machine may pass.
        timeout = 0.1 if "stall" in fault else 10
        encoder(server, retries=2, timeout=timeout, in_flight=1).encode(TEXTS)
    assert "\n" not in str(caught.value)
    assert len(server.asked) == requests


def test_shares_of_several_workers_pay_for_nothing_twice(server, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    made = encoder(server, key_variable="MY_KEY", requests_a_minute=6000)
    assert made.encode(["to open the connection"]).shape == (1, 8)
    server.answered.clear()
    for number in range(3):
        sent = copy.deepcopy(made)
        assert (
            "sk-secret" not in str(sent.client.__reduce__())
            and not vars(sent.client)["_idle_clients"]
        )
        paid, requests = {*server.texts}, len(server.answered)
        engine_of(sent, tmp_path).prepare(TEXTS, share=BatchShare(number, 3))
        assert paid.isdisjoint(chain(*server.answered[requests:]))
    assert {*server.texts} == {*TEXTS}
    assert not engine_of(made, tmp_path).missing_texts(TEXTS)


def test_an_answer_has_bounds(server, monkeypatch):
    monkeypatch.setattr(client, "MAX_RESPONSE_BYTES", 1000)
    with pytest.raises(EncoderError, match="more than 1,000 bytes"):
        encoder(server).encode(TEXTS)
    assert encoder(server).encode(TEXTS[:1]).shape == (1, 8)


def test_too_large_requests_are_halved(server):
    server.most = 3
    np.testing.assert_array_equal(encoder(server, batch=16).encode(TEXTS), expected(server, TEXTS))
    assert {*server.texts} == {*TEXTS} and len(server.again) == 4 + 3
    server.most = 0
    with pytest.raises(EncoderError, match="text too long"):
        encoder(server).encode(["a"])


def test_so_many_requests_are_under_way_together_and_a_rate_is_kept(server):
    server.fail(stall=0.3, times=4)
    encoder(server, in_flight=3, batch=5).encode(TEXTS)
    assert server.most_under_way == 3
    server.times.clear()
    encoder(server, batch=10, requests_a_minute=600).encode(TEXTS)
    assert server.times[-1] - server.times[0] > 0.38
    server.times.clear()
    encoder(server, batch=10, tokens_a_minute=60_000).encode(TEXTS)
    tokens = encoder(server).count_tokens(TEXTS)
    assert server.times[-1] - server.times[0] > 0.5 * tokens / 1000


def test_the_key_is_sent_and_stands_nowhere(server, monkeypatch, tmp_path, caplog):
    caplog.set_level(0)
    monkeypatch.setenv("MY_KEY", "sk-secret-1234")
    server.key = "sk-secret-1234"
    made = encoder(server, key_variable="MY_KEY")
    engine = engine_of(made, tmp_path)
    engine.prepare(TEXTS)
    assert {h["Authorization"] for h in server.headers} == {"Bearer sk-secret-1234"}
    server.key = "another"
    with pytest.raises(EncoderError, match=r"401: no key: Bearer \*\*\*") as caught:
        engine.prepare(["more"])
    assert "MY_KEY" in caught.value.hint
    shown = [
        str(caught.value),
        repr(made),
        str(vars(made)),
        str(vars(made.client)),
        *made.notes,
        caplog.text,
    ]
    files = [
        path.read_bytes()
        for folder in (tmp_path, settings.cache_folder())
        for path in folder.rglob("*.*")
    ]
    assert files and not any(b"sk-secret" in content for content in files)
    assert not any("sk-secret" in text for text in shown)
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(StsbenchError, match="the environment variable MY_KEY holds no key"):
        encoder(server, key_variable="MY_KEY").encode(["a"])
    # No key is sent where none was named, whatever the environment holds.
    monkeypatch.setenv("OPENAI_API_KEY", "sk-other")
    server.key = ""
    encoder(server).encode(["a"])
    assert "Authorization" not in server.headers[-1]
    assert (
        OpenAIEncoder("m", url="https://api.openai.com/v1").client.key_variable == "OPENAI_API_KEY"
    )


NUMBERS = ("batch", "batch_tokens", "in_flight", "dimensions", "requests_a_minute", "timeout")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"url": ""}, "needs its address: `params=url="),
        ({"url": "localhost:8000"}, "is no address"),
        ({"url": "ftp://host/v1"}, "is no address"),
        ({"url": "http://a..b/v1"}, "url 'http://a..b/v1' is no address"),
        ({"url": "http://ho\0st/v1"}, r"url 'http://ho\x00st/v1' is no address"),
        ({"url": "http://user:word@host/v1"}, "url of host: leave out user"),
        ({"url": "http://host/v1?key=sk-secret"}, "url of host: leave out user"),
        ({"body": {"input": "x"}}, "body: 'input' cannot be set"),
        ({"encoding": "utf"}, "'utf' is not one of float, base64"),
        ({"api": "opnai"}, "did you mean 'openai'"),
        *(({key: -1}, key) for key in NUMBERS),
    ],
)
def test_mistakes_are_one_line_that_holds_no_key(params, message):
    with pytest.raises((CardError, UnknownName), match=re.escape(message)) as caught:
        call_with_params(
            OpenAIEncoder, {"model": "m", "url": "http://localhost:1", **params}, where="card"
        )
    assert "secret" not in str(caught.value) and "word@" not in str(caught.value)


def test_what_was_paid_for_is_kept_and_not_paid_again(server, tmp_path):
    server.fail(status=400, body=b"{}", only_with="sentence 49")
    first = encoder(server, in_flight=3)
    with pytest.raises(EncoderError, match="answered 400"):
        engine_of(first, tmp_path).prepare(TEXTS)
    paid, requests = {*server.texts}, len(server.answered)
    assert paid
    server.faults.clear()
    engine = engine_of(encoder(server), tmp_path)
    np.testing.assert_array_equal(np.asarray(engine(TEXTS)), expected(server, TEXTS))
    assert {*server.texts} == {*TEXTS}
    assert paid.isdisjoint(chain(*server.answered[requests:]))
    assert engine.count_encoded(TEXTS) == len(TEXTS) - len(paid)


def test_after_a_refusal_nothing_more_is_asked(server):
    server.fail(status=400, body=b"{}", only_with="sentence number 22")
    with pytest.raises(EncoderError, match="answered 400"):
        encoder(server, in_flight=1).encode(TEXTS)
    assert len(server.asked) > 1 and "sentence number 22" in server.asked[-1]["input"]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_a_certificate_that_ssl_cert_file_names_is_taken_on_this_machine_too(tmp_path, monkeypatch):
    key, made = tmp_path / "key.pem", tmp_path / "made.pem"
    words = f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {key} -out {made} -subj /CN=localhost -days 1"
    subprocess.run(
        [*words.split(), "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(made))
    with serving(tls) as own:
        assert encoder(own, retries=0).encode(TEXTS).shape == (50, 8)


def test_one_bad_embedding_costs_no_other(server, tmp_path):
    server.fail(change=replaced(embedding=[None] * 8), times=1)
    made = encoder(server, in_flight=1, batch=51)
    with pytest.raises(EncoderError, match="null for sentence"):
        engine_of(made, tmp_path).prepare(TEXTS)
    assert len(engine_of(made, tmp_path).missing_texts(TEXTS)) == 1


def test_ctrl_c_keeps_what_is_under_way(server, tmp_path):
    made = encoder(server, in_flight=2, batch=5)
    # The first request, its text that is asked for again, and one of the two that are then under way.
    at_once, stopped = threading.Semaphore(3), threading.Event()

    def some_at_once(answer: Any) -> Any:
        assert at_once.acquire(blocking=False) or stopped.wait(30)
        return answer

    def stop(done: int, total: int) -> None:
        if done > 5:
            stopped.set()
            raise KeyboardInterrupt

    server.fail(change=some_at_once)

    with pytest.raises(KeyboardInterrupt):
        Engine(made, open_store(tmp_path, made), on_progress=stop).prepare(TEXTS)
    kept = len(TEXTS) - len(engine_of(made, tmp_path).missing_texts(TEXTS))
    assert 10 < kept == len(server.texts) < len(TEXTS)


def test_what_is_stored_is_found_without_the_server(tmp_path):
    with serving() as server:
        made = encoder(server)
        engine_of(made, tmp_path).prepare(TEXTS[:40])
    gone = encoder(server)
    assert gone.fingerprint == made.fingerprint
    engine = engine_of(gone, tmp_path)
    assert engine(TEXTS[:40]).shape == (40, 8)
    with pytest.raises(SourceError, match="in 2 attempts"):
        Engine(encoder(server, retries=1), engine.store).prepare(TEXTS)
    with pytest.raises(SourceError, match="no server answers") as caught:
        encoder(server, api="tei").encode(["a"])
    assert server.url in caught.value.problem and "start it" in caught.value.hint


def test_the_fingerprint_is_what_is_asked_and_what_the_server_says(server):
    first = encoder(server)
    assert (
        first.fingerprint
        == encoder(server, batch=3, in_flight=1, name="other", timeout=5).fingerprint
    )
    changes = (
        {"dimensions": 4},
        {"prompt": "q: "},
        {"encoding": "base64"},
        {"api": "tei"},
        {"body": {"task": "sts"}},
    )
    others = {encoder(server, **change).fingerprint for change in changes}
    assert len({*others, first.fingerprint}) == 6
    server.models = {"data": [{"id": "m", "created": 2, "root": "weights-1"}]}
    assert encoder(server).fingerprint == first.fingerprint
    with serving() as elsewhere:
        assert encoder(elsewhere).fingerprint == first.fingerprint
    server.models = {"data": [{"id": "m", "created": 2, "root": "weights-2"}]}
    assert encoder(server).fingerprint != first.fingerprint
    assert encoder(server).notes == [
        "embedded by a server that calls its model 'm': which weights those are is not known; it says root weights-2"
    ]


def test_tokens_are_counted_by_the_models_tokenizer(server, bert: Path):
    counted, guessed = encoder(server, tokenizer=str(bert)), encoder(server)
    # Both are asked for twice, and the text that every run asks for once.
    assert counted.count_tokens(["a dog runs", "the cat"]) == 2 * 5 + 7
    assert guessed.count_tokens(["a dog runs", "the cat"]) == 2 * (4 + 3) + 8
    assert guessed.count_tokens(["a dog runs", " "]) == 4
    assert counted.count_tokens([]) == guessed.count_tokens([]) == 0
