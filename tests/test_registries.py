"""A made-up row in each table that something is chosen from by name goes the whole way: one place for each thing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from stsbench.analysis.inside import Layers, TokenFrequency
from stsbench.analysis.mistakes import slices
from stsbench.analysis.robustness import Edit, Robustness
from stsbench.analysis.space import Projection, SentenceMap
from stsbench.bench.plan import ProtocolChoice
from stsbench.boards.published.specs import AverageFacts
from stsbench.boards.render.figures import render_comparison
from stsbench.boards.tables.columns import measured_averages
from stsbench.check.gate import Tolerance, parse_tolerances
from stsbench.core.cards import SweepCard
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import choose
from stsbench.data.corpora.making import make_corpus
from stsbench.data.task import load_task
from stsbench.encoders.load import load_encoder
from stsbench.encoders.served.openai import OpenAIEncoder, TEIApi
from stsbench.encoders.words.recurrent import pool_max
from stsbench.encoders.words.words import Tokeniser, libraries, tokeniser
from stsbench.evaluators.probe.minibatch import parse_optimiser
from stsbench.evaluators.relatedness import RelatednessProtocol
from stsbench.evaluators.retrieval import RetrievalProtocol
from stsbench.evaluators.sts import StsProtocol
from stsbench.numbers.similarity import paired_dot
from stsbench.significance.comparison import Comparison
from stsbench.studies.sweep import CARRIERS, SEARCHES, Search
from stsbench.training.methods.is_bert import ISBERT
from stsbench.training.methods.simcse import SimCSEPositives
from stsbench.training.methods.views import CLEAR, Operator
from stsbench.training.objectives import info_nce, pair_features, self_guided
from stsbench.training.objectives.self_guided import SelfGuidedVariant
from stsbench.training.spans import sample_spans
from tests import made_up
from tests.analysis.beds import bed
from tests.cli.commands import Command, write
from tests.registries import tables
from tests.training.students import sentences, student

CARDS = {
    "tasks/mine.toml": """
        name = "Mine"
        evaluator = "mine"
        languages = ["en"]
        paper = "none"
        license = "mine"
        [splits.test]
        n = 4
        [local]
        reader = "mine"
        folder = "mine"
        [local.files]
        test = [{path = "pairs.tsv"}]
        """,
    "tasks/suites.toml": '[ours]\nname = "Ours"\ntasks = ["mine", "quickstart-probe"]\naverage = false',
    "trainers/learned.toml": """
        name = "Learned"
        method = "mine"
        paper = "none"
        preset = "our own"
        supervision = "none"
        backbone = "tiny"
        [base]
        model = "MODEL"
        [data]
        corpus = "text.mine.mine"
        [training]
        batch_size = 8
        learning_rate = 1e-3
        steps = 2
        optimiser = "mine"
        schedule = "mine"
        [selection]
        task = "mine"
        split = "test"
        every = 1
        measure = "mine"
        """,
}
ENCODER = (
    'method = "none"\nbackbone = "none"\nsupervision = "none"\noverlap = "none"\npaper = "none"\nlicense = "mine"\n'
)
ENCODERS = {
    "kinded": 'kind = "mine"',
    "pooled": 'kind = "transformer"\nparams = {model = "MODEL", pooling = "mine", backend = "mine"}',
    "worded": 'kind = "words"\nparams = {file = "words.txt", tokens = "mine"}',
}
PAIRS = "a cat sat\tthe cat sat\t5\na dog ran\tno dog ran\t3.5\ncoffee\ttea\t2\nit rains\tthe sun shines\t0.5\n"


def table(address: str) -> Any:
    """The mapping at an address: of a registry, its addresses."""
    module, name = address.split(":")
    found = getattr(import_module(f"stsbench.{module}"), name)
    return getattr(found, "table", found)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, masked_lm: Path) -> Path:
    """A user's folder: cards, data, text and word vectors."""
    folder = tmp_path_factory.mktemp("made-up")
    for name, text in CARDS.items():
        write(folder / name, "\n".join(line.strip() for line in text.replace("MODEL", str(masked_lm)).splitlines()))
    for name, text in ENCODERS.items():
        write(folder / f"baselines/{name}.toml", f'name = "{name}"\n{ENCODER}{text.replace("MODEL", str(masked_lm))}\n')
    write(folder / "data" / "mine" / "pairs.tsv", PAIRS)
    write(folder / "text.mine.mine", "\n".join(sentences(16))[::-1])
    words = sorted({word for sentence in PAIRS.split() for word in sentence.split()} | {"the", "of", "is"})
    write(folder / "words.txt", "".join(f"{word} {i}.5 {-i} 1\n" for i, word in enumerate(words)))
    return folder


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Every made-up row in its table."""
    for address, row in made_up.ROWS.items():
        ending = ".mine" if "corpora.load" in address else "mine"
        monkeypatch.setitem(table(address), ending, row)
    monkeypatch.setitem(table("evaluators.sts:PROTOCOLS"), "mine", made_up.protocol())
    made_up.USED.clear()
    yield monkeypatch


def test_made_up_rows_go_the_whole_way(place, patched, capsys):
    patched.chdir(place)
    shutil.rmtree("results", ignore_errors=True)
    command = Command(capsys)
    cards = ("--cards", ".")
    assert "a thing of mine" in command("list", "mine", *cards).out
    assert command("show", "a thing of mine", *cards).out.startswith("a thing of mine: mine")
    trained = command("train", "learned", "--data", "data", "--on", "mine", *cards)
    assert trained.code == 0, trained.err
    names = "kinded,pooled,worded,learned"
    chosen = ("--tasks", "ours", "--protocol", "mine", "--on", "mine")
    scored = command("run", "-e", names, *chosen, "--data", "data", *cards)
    assert scored.code == 0, scored.err
    board = command("leaderboard", "--suite", "ours", "--format", "mine", *cards)
    assert board.code == 0, board.err
    assert set(names.split(",")) <= set(board.out.split())
    assert command("export", "--format", "mine", *cards).code == 0
    index = command("export", "--format", "model-index", "-e", "kinded", *cards)
    assert "task-of-mine" in index.out, index.err
    assert command("check", "results", "--against", "results", "--rule", "mine", *cards).code == 0
    analysed = command(
        "analyze", "mine", "-e", "kinded", "--tasks", "mine", "--out", "a.mine", "--data", "data", *cards
    )
    assert analysed.code == 0, analysed.err
    assert Path("a.mine").read_text() == "mine: mine (test)"
    assert "wrote" in command("convert", "mine", "a", "b").out
    unseen = {"boards.exports.measured:KINDS"}
    assert made_up.USED == set(made_up.ROWS) - unseen


class Direct(NamedTuple):
    """A made-up row of a table, what chooses it by its name, and what that gives."""

    row: Any
    call: Callable[[], Any]
    expected: Any


ONES = torch.ones(2, 3)
MINE: Any = "mine"


def scored(task: str) -> Callable[[], Any]:
    return lambda: ProtocolChoice("mine").scored(load_task(task), None).protocol["name"]


SWEEP = SweepCard(name="Mine", recipes=["mine"], values={"a": [1]}, search="mine")
"""A sweep that searches in a made-up way."""


DIRECT = {
    "analysis.robustness:EDITS": Direct(
        Edit(lambda sentence, rng: f"{sentence}!", matters=False),
        lambda: Robustness().tables(bed(made_up.Encoder()))["edits"][-1]["edit"],
        "mine",
    ),
    "analysis.inside:LAYER_PICTURES": Direct(
        lambda rows, title: title, lambda: Layers(picture=MINE).draw({"layers": []}, "t"), "t"
    ),
    "analysis.space:PROJECTIONS": Direct(
        Projection(lambda every, drawn, seed: np.zeros((len(drawn), 2)), ("x", "y")),
        lambda: SentenceMap(method=MINE, above=2.5).tables(bed(made_up.Encoder()))["encoders"][0]["join"],
        0.0,
    ),
    "analysis.inside:TOKEN_PICTURES": Direct(
        lambda tables, title: title, lambda: TokenFrequency(picture=MINE).draw({}, "t"), "t"
    ),
    "analysis.mistakes:SLICINGS": Direct(
        lambda first, second: first + second, lambda: slices("a", "b")["mine"], ["ab"]
    ),
    "check.gate:TOLERANCES": Direct(
        Tolerance(name="mine", points=1.0, why="made up"), lambda: parse_tolerances(["mine=0.5"])["mine"].points, 0.5
    ),
    "encoders.served.openai:APIS": Direct(
        TEIApi, lambda: OpenAIEncoder("m", url="http://localhost", api="mine").api.about_path, "/info"
    ),
    "encoders.words.recurrent:_MAXIMA": Direct(
        lambda states: states.sum(dim=1), lambda: pool_max(ONES[None], MINE).tolist(), [[2.0, 2.0, 2.0]]
    ),
    "encoders.words.words:TOKENISERS": Direct(
        Tokeniser(lambda: list, ("one",)), lambda: (tokeniser("mine")("ab"), libraries("mine")), (["a", "b"], ("one",))
    ),
    "evaluators.relatedness:PROTOCOLS": Direct(RelatednessProtocol(name="mine"), scored("sickr-regression"), "mine"),
    "evaluators.retrieval:PROTOCOLS": Direct(RetrievalProtocol(name="mine"), scored("coco"), "mine"),
    "boards.render.figures:WRITERS": Direct(
        lambda comparison: f"level {comparison.level}",
        lambda: render_comparison(Comparison(encoders=[], differences=[], level=0.05), "mine"),
        "level 0.05",
    ),
    "boards.tables.columns:ROUNDINGS": Direct(
        lambda terms, means, decimals: 42.0,
        lambda: measured_averages(["a"], {"a": {(None, 0): 1.0}}, AverageFacts(task="a", rounding="mine"), 2)[0].value,  # type: ignore[index]
        42.0,
    ),
    "numbers.similarity:SIMILARITIES": Direct(
        paired_dot,
        lambda: StsProtocol(name="simcse", metric="spearman", aggregation="all", similarity="mine").similarity,
        "mine",
    ),
    "training.objectives.contrastive:SIMILARITIES": Direct(
        lambda a, b: 0 * (a @ b.T),
        lambda: round(float(info_nce(ONES, ONES, temperature=1.0, similarity=MINE)), 4),
        0.6931,
    ),
    "studies.sweep:CARRIERS": Direct(
        "tests.made_up:carry", lambda: CARRIERS.load_at("mine://there")(MINE, "", 1, MINE), "carried"
    ),
    "studies.sweep:SEARCHES": Direct(
        Search(propose=lambda card, tried, begun: None, size=lambda card: 7),
        lambda: choose("search", SWEEP.search, SEARCHES).size(SWEEP),
        7,
    ),
    "training.objectives.pairs:_FEATURES": Direct(
        lambda u, v: u + v, lambda: pair_features(ONES, ONES, ["mine"]).tolist(), [[2.0] * 3] * 2
    ),
    "training.objectives.self_guided:SELF_GUIDED": Direct(
        SelfGuidedVariant(lambda cls, hidden, temperature: hidden.sum(), every_layer=True),
        lambda: self_guided(ONES, torch.ones(2, 4, 3), temperature=1.0, variant="mine").item(),
        24.0,
    ),
    "training.spans:STRATEGIES": Direct(
        lambda anchor, n, shortest, longest, rng: (0, 1),
        lambda: (
            sample_spans(
                9, anchors=1, positives=1, min_len=1, max_len=2, strategy="mine", rng=np.random.default_rng(0)
            ).positives
        ),
        [[(0, 1)]],
    ),
}


@pytest.mark.parametrize("address", DIRECT)
def test_a_made_up_row_is_chosen_by_its_name(address, monkeypatch):
    row, call, expected = DIRECT[address]
    monkeypatch.setitem(table(address), "mine", row)
    assert call() == expected


def test_a_made_up_way_makes_a_corpus(monkeypatch, tmp_path):
    def make(order: Any) -> int:
        order.path.write_text("one\ntwo\n")
        return 2

    monkeypatch.setitem(table(MAKING), "mine", make)
    facts = 'name = "M"\nlicense = "none"\nsource = "none"\nrows = 2\nfile = "m.txt"\ncolumns = {text = "text"}\n'
    write(tmp_path / "trainers" / "corpora.toml", f'[m]\n{facts}[m.make]\nway = "mine"\nof = "nothing"\n')
    made = make_corpus("m", corpora=tmp_path, catalogue=Catalogue([tmp_path]), open_tokenizer=None)  # type: ignore[arg-type]
    assert made == (tmp_path / "m.txt", 2)


def test_a_made_up_operator_of_clear_alters_sentences(monkeypatch, masked_lm):
    monkeypatch.setitem(table(CLEARS), "mine", Operator(lambda strengths: lambda words, rng: words[:1]))
    learner = CLEAR(student(masked_lm), first="mine", second="mine", mlm_weight=0.0)
    learner.prepare({"text": sentences(4)})
    views = learner.collate(np.arange(4), np.random.default_rng(0))["views"]
    assert views["attention_mask"].sum(dim=1).tolist() == [3] * 8


def test_a_made_up_change_of_words_makes_positives(monkeypatch, masked_lm):
    monkeypatch.setitem(table(CHANGES), "mine", lambda changes: lambda words, rng: words[:1])
    learner = SimCSEPositives(student(masked_lm), positive="mine")
    learner.prepare({"text": sentences(4)})
    second = learner.collate(np.arange(4), np.random.default_rng(0))["second"]
    assert second["attention_mask"].sum(dim=1).tolist() == [3] * 4


def test_a_made_up_activation_is_trained_under_and_saved(monkeypatch, masked_lm, tmp_path):
    monkeypatch.setitem(table(ACTIVATIONS), "mine", torch.nn.Tanh)
    learner = ISBERT(student(masked_lm), activation="mine", channels=4).eval()
    learner.save(tmp_path)
    texts = sentences(5)
    kept, trained = (one.encode(texts) for one in (load_encoder(str(tmp_path)), learner.encoders()[0]))
    np.testing.assert_allclose(kept, trained, atol=1e-5)
    assert np.abs(trained).max() <= 1


MAKING, CLEARS = "data.corpora.making:WAYS", "training.methods.views:OPERATORS"
CHANGES, ACTIVATIONS = "training.methods.simcse:WORD_CHANGES", "training.methods.is_bert:ACTIVATIONS"
NO_NAMES = {
    "bench.run:ARGUMENTS": "what arguments of functions may be",
    "significance.parity:CAUSES": "what sentences that went astray may have in common: nobody asks for one",
    "data.corpora.corpus:OF_NUMBERS": "the signs of a comparison, all of which a condition may have",
    "encoders.token_removal:FACTS": "facts of a fingerprint",
    "encoders.transformer.kernels:TAKEN": "the types of torch's numbers that oneDNN multiplies",
    "encoders.runtimes:OPENERS": "one for each library that BACKENDS name",
    "encoders.described:_POOLINGS": "made of POOLINGS",
    "evaluators.probe.kernels:KINDS": "codes of the compiled loops, for each kind of features",
    "evaluators.probe.kernels:OPTIMISERS": "codes of the compiled loops, for each row of _DEFAULTS",
    "evaluators.probe.minibatch:_DEFAULTS": "written out in compiled loops and in torch: a new one is code in each",
    "boards.tables.table:OVERLAPS": "the marks of what a result says",
    "plots.chart:STYLE": "settings of matplotlib",
    "training.methods.views:CUTOFFS": "each has a parameter of ConSERT's",
}
"""Tables in which no made-up row can be chosen, and why."""


def test_no_table_is_without_its_made_up_row():
    tested = {*made_up.ROWS, "evaluators.sts:PROTOCOLS", *DIRECT, MAKING, CLEARS, CHANGES, ACTIVATIONS}
    assert tested | set(NO_NAMES) == tables()
    assert not tested & set(NO_NAMES)


@pytest.mark.parametrize("text", ["adam", "rmsprop", "sgd,lr=0.1"])
def test_the_compiled_loops_have_every_optimiser_of_the_toolkit(text):
    assert set(table("evaluators.probe.kernels:OPTIMISERS")) == set(table("evaluators.probe.minibatch:_DEFAULTS"))
    assert parse_optimiser(text).name in table("evaluators.probe.kernels:OPTIMISERS")
