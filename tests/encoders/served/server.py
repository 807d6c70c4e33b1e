"""A small server of embeddings on the loopback interface, of OpenAI's way and TEI's, that fails as a test says."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

import numpy as np

from stsbench.encoders.served.openai import PROBE_TEXT
from tests.encoders.fakes import hashed


@dataclass
class Fault:
    """What is wrong with an answer; ``times`` counts down, below zero it never ends."""

    status: int = 0
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False
    """Break the connection instead of answering."""
    stall: float = 0
    """Seconds before a true answer."""
    change: Any = None
    """Called with the true answer, returns another."""
    only_with: str = ""
    """Of requests that hold this text alone."""
    times: int = -1


@dataclass
class Server:
    """What it was asked, and how it answers."""

    size: int = 8
    most: int = 2048
    """Texts that it takes at once."""
    key: str = ""
    models: dict[str, Any] = field(
        default_factory=lambda: {"data": [{"id": "m", "created": 1, "root": "weights-1"}]}
    )
    models_status: int = 200
    """How it answers where it is asked for its models."""
    faults: list[Fault] = field(default_factory=list)
    asked: list[dict[str, Any]] = field(default_factory=list)
    answered: list[list[str]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    url: str = ""

    def fail(self, **facts: Any) -> None:
        self.faults.append(Fault(**facts))

    @property
    def texts(self) -> list[str]:
        """Every text that it has embedded, once; without the one that every run asks for."""
        return [
            text for text in dict.fromkeys(chain.from_iterable(self.answered)) if text != PROBE_TEXT
        ]

    @property
    def again(self) -> list[str]:
        """The texts that it has embedded before, each as often as it was asked for again."""
        texts = Counter(text for text in chain.from_iterable(self.answered) if text != PROBE_TEXT)
        return [*(texts - Counter(dict.fromkeys(texts, 1))).elements()]

    def fault(self, body: bytes) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times != 0 and fault.only_with.encode() in body:
                    fault.times -= 1
                    return fault
        return None

    @staticmethod
    def rows(texts: Sequence[str], size: int) -> list[list[float]]:
        return [[float(np.float32(value + 1e-3)) for value in hashed(text, size)] for text in texts]

    def true_answer(self, asked: Mapping[str, Any]) -> Any:
        texts = asked["inputs"] if "inputs" in asked else asked["input"]
        rows: list[Any] = self.rows(texts, asked.get("dimensions", self.size))
        self.answered.append(list(texts))
        if "inputs" in asked:
            return rows
        if asked.get("encoding_format") == "base64":
            rows = [base64.b64encode(np.array(row, "<f4").tobytes()).decode() for row in rows]
        return {
            "data": [
                {"index": i, "object": "embedding", "embedding": row} for i, row in enumerate(rows)
            ]
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_facts: Server

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            **headers,
        }.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        facts = self.server_facts
        is_known = (
            self.path.removeprefix("/v1") in ("/models", "/info") and facts.models_status == 200
        )
        status = facts.models_status if facts.models_status != 200 or is_known else 404
        self.send(status, json.dumps(facts.models if is_known else {}).encode(), {})

    def do_POST(self) -> None:
        facts = self.server_facts
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with facts.lock:
            facts.asked.append(json.loads(body))
            facts.headers.append(dict(self.headers))
            facts.times.append(time.monotonic())
            facts.under_way += 1
            facts.most_under_way = max(facts.most_under_way, facts.under_way)
        try:
            self.answer(json.loads(body), facts.fault(body))
        except OSError:
            self.close_connection = True
        finally:
            with facts.lock:
                facts.under_way -= 1

    def answer(self, asked: Mapping[str, Any], fault: Fault | None) -> None:
        facts = self.server_facts
        texts = asked["inputs"] if "inputs" in asked else asked["input"]
        if facts.key and self.headers.get("Authorization") != f"Bearer {facts.key}":
            said = {"error": {"message": f"no key: {self.headers.get('Authorization')}"}}
            return self.send(401, json.dumps(said).encode(), {})
        if len(texts) > facts.most:
            return self.send(413, b'{"error": "batch size > maximum allowed batch size"}', {})
        if fault is not None:
            time.sleep(fault.stall)
            if fault.cut:
                self.close_connection = True
                return None
            if fault.status or fault.body:
                return self.send(fault.status or 200, fault.body, fault.headers)
        answer = facts.true_answer(asked)
        changed = fault.change(answer) if fault is not None and fault.change is not None else answer
        return self.send(200, json.dumps(changed).encode(), {})


@contextmanager
def serving(tls: ssl.SSLContext | None = None, **facts: Any) -> Iterator[Server]:
    """Run a server; its ``url`` is the address to give."""
    made = Server(**facts)
    handler = type("OwnHandler", (Handler,), {"server_facts": made})
    listener = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    listener.daemon_threads = True
    made.url = f"http://127.0.0.1:{listener.server_port}/v1"
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
        made.url = f"https://localhost:{listener.server_port}/v1"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
