"""A name that is in no table is an error that offers the nearest; nothing stands for "all the others"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

import stsbench
from stsbench.analysis.inside import Layers, TokenFrequency
from stsbench.analysis.space import SentenceMap
from stsbench.analysis.training import SweepCells
from stsbench.bench.embed import texts_to_fit
from stsbench.bench.plan import ProtocolChoice
from stsbench.boards.published import published_row
from stsbench.boards.published.specs import AverageFacts
from stsbench.boards.render import check_format
from stsbench.boards.render.figures import render_comparison
from stsbench.boards.tables.columns import measured_averages
from stsbench.boards.tables.table import check_show
from stsbench.check.gate import parse_tolerances
from stsbench.core.cards import SelectionFacts, SweepCard, TrainingFacts
from stsbench.core.catalogue import Catalogue
from stsbench.core.errors import StsbenchError
from stsbench.data.corpora.corpus import Corpus, of_form
from stsbench.data.corpora.load import load_corpus
from stsbench.data.corpora.making import make_corpus
from stsbench.data.readers import READERS
from stsbench.data.splits import PairSplit
from stsbench.data.task import expand_names, load_task
from stsbench.encoders.backends import backend_kind
from stsbench.encoders.base import ENCODERS
from stsbench.encoders.described import named_prompt, read_saved, write_saved
from stsbench.encoders.load import load_encoder
from stsbench.encoders.network import find_file
from stsbench.encoders.served.openai import OpenAIEncoder
from stsbench.encoders.token_removal import TokenRemovalEncoder
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.encoders.words.recurrent import Half, pool_max
from stsbench.encoders.words.words import WordsEncoder
from stsbench.evaluators import EVALUATORS, evaluator_of
from stsbench.evaluators.probe.items import combine_sides
from stsbench.evaluators.probe.minibatch import parse_optimiser
from stsbench.recipes.plan import validator
from stsbench.recipes.trainer import TRAINERS
from stsbench.results.folder import read_result
from stsbench.significance.comparison import Comparison
from stsbench.studies.reproduction import load_ablation
from stsbench.studies.sweep import Sweep, decided
from stsbench.studies.trials import Workshop
from stsbench.training.loop.optimisers import check_names
from stsbench.training.loop.selection import Selection
from stsbench.training.methods import METHODS
from stsbench.training.methods.after_simcse import ESimCSE, RankCSE
from stsbench.training.methods.denoising import TSDAE
from stsbench.training.methods.diffcse import DiffCSE
from stsbench.training.methods.is_bert import ISBERT
from stsbench.training.methods.promptbert import PromptBERT
from stsbench.training.methods.sbert import AnglE, SBERTTriplets
from stsbench.training.methods.self_guided import SelfGuided
from stsbench.training.methods.simcse import SimCSE, SimCSEPositives
from stsbench.training.methods.views import CLEAR, ConSERT
from stsbench.training.objectives import info_nce, list_mle, mixed_info_nce, pair_features, self_guided
from stsbench.training.spans import sample_spans
from stsbench.training.translation import Decoding
from stsbench.training.words.gru_halves import SkipThoughts
from tests.cli.commands import Command, write
from tests.registries import refusals
from tests.training.students import student

ONES: Any = torch.ones(2, 3)
SPLIT = PairSplit(sentences1=["a"], sentences2=["b"], gold=np.ones(1), subset=[""])
CARDS = Catalogue()
NO_PAIRS = Comparison(encoders=[], differences=[], level=0.05)
PAIRS = Corpus(name="pairs", table=pa.table({"first": ["a"], "second": ["b"]}))
PROMPTS = '{"prompts": {"query": "query: "}}'


def training(**given: Any) -> TrainingFacts:
    return TrainingFacts(batch_size=2, learning_rate=1.0, epochs=1, **given)


def chosen_by(**given: Any) -> Selection:
    """A selection that has seen one validation, of facts as no card can have them."""
    made: Any = Selection.__new__(Selection)
    made.facts, made.curve, made.best = SelectionFacts(**given), [{"score": 1.0}], {"score": 1.0}
    return made  # type: ignore[no-any-return]


(MEASURED,) = (Path(__file__).parent.parent / "results" / "minilm").glob("stsb.test.*.json")


def sweep(folder: Path, **given: Any) -> Sweep:
    card = SweepCard(name="Mine", recipes=["simcse-small"], values={"temperature": [1.0]}, **given)
    return Sweep(name="mine", card=card, workshop=Workshop(results=folder), folder=folder)


def saved(folder: Path) -> object:
    write_saved(folder, "transfomer", {})
    return read_saved(folder)


def prompt(folder: Path) -> str:
    write(folder / "config_sentence_transformers.json", PROMPTS)
    return named_prompt(folder, "qery")


def named_file(folder: Path) -> object:
    write(folder / "model.onnx", "")
    return find_file(folder, "modle.onnx", usual="model.onnx", suffixes=(".onnx",))


def suite_of_nothing(folder: Path) -> list[str]:
    write(folder / "tasks" / "suites.toml", '[ours]\nname = "Ours"\ntasks = ["stsbb"]\n')
    return expand_names("ours", Catalogue([folder]))


def compared(folder: Path, name: str) -> object:
    stsbench.evaluate("tests.made_up:Encoder", "quickstart-en", store=None).save(folder)
    return stsbench.compare("letters", name, results=folder)


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "analysis.inside:picture of layers": (lambda _: Layers(picture="heet"), "heet|heat"),
    "analysis.training:key of the sweep": (
        lambda _: SweepCells(by="temprature").draw({"points": [{"key": "temperature"}], "grid": []}, ""),
        "temprature|temperature",
    ),
    "analysis.inside:picture of tokens": (lambda _: TokenFrequency(picture="band"), "band|bands"),
    "analysis.space:method of a map": (lambda _: SentenceMap(method="pcaa"), "pcaa|pca"),
    "bench.embed:text to fit on": (lambda _: texts_to_fit("targt", task=None, catalogue=CARDS), "targt|target"),
    "training.objectives.contrastive:variant": (
        lambda _: mixed_info_nce(ONES, ONES, temperature=0.05, mixing=0.2, variant="papers"),
        "papers|paper",
    ),
    "core.registry:argument of": (
        lambda _: stsbench.evaluate("minilm", "quickstart-en", on_eror="skip"),  # type: ignore[call-arg]
        "on_eror|on_error",
    ),
    "bench.run:on_error": (
        lambda _: stsbench.evaluate("minilm", "quickstart-en", on_error="skipp"),  # type: ignore[arg-type]
        "skipp|skip",
    ),
    "api.calls:encoder": (lambda f: compared(f, "leters"), "leters|letters"),
    "api.calls:on_error": (
        lambda _: stsbench.read_results("results", on_error="skipp"),  # type: ignore[arg-type]
        "skipp|skip",
    ),
    "api.calls:show": (lambda _: stsbench.leaderboard(show="mesured"), "mesured|measured"),
    "evaluators:protocol": (
        lambda _: evaluator_of("sts12", Catalogue().task("sts12"), {"name": "simce"}),
        "simce|simcse",
    ),
    "bench.plan:protocol": (lambda _: unused("simcce"), "simcce|simcse"),
    "check.gate:tolerance class": (lambda _: parse_tolerances(["hlf=1"]), "hlf|half"),
    "data.corpora.corpus:form of rows": (lambda _: of_form(PAIRS, "triplet"), "triplet|triplets"),
    "data.corpora.load:corpus": (lambda _: load_corpus("wiki1", catalogue=CARDS), "wiki1|wiki1m"),
    "data.corpora.making:corpus": (lambda f: make_corpus("wiki1", corpora=f, **MAKING), "wiki1|wiki1m"),
    "data.readers:reader": (lambda _: READERS.load("pair_tabel"), "pair_tabel|pair_table"),
    "data.task:split of": (lambda _: load_task("quickstart-en").load("tset"), "tset|test"),
    "data.task:task in suite": (suite_of_nothing, "stsbb|stsb"),
    "data.task:task or suite": (lambda _: expand_names("stsbb", CARDS), "stsbb|stsb"),
    "encoders.described:kind of saved encoder": (saved, "transfomer|transformer"),
    "encoders.base:encoder kind": (lambda _: ENCODERS.load("transfomer"), "transfomer|transformer"),
    "encoders.load:encoder": (lambda _: load_encoder("minilmm"), "minilmm|minilm"),
    "encoders.backends:backend": (
        lambda _: backend_kind("onxx", dtype="float32", device="cpu"),
        "onxx|onnx",
    ),
    "encoders.network:file": (named_file, "modle.onnx|model.onnx"),
    "encoders.served.openai:api of a server": (
        lambda _: OpenAIEncoder("m", url="http://localhost", api="opnai"),
        "opnai|openai",
    ),
    "encoders.described:prompt of": (prompt, "qery|query"),
    "encoders.transformer.pooling:pooling": (lambda _: Pooling.parse("meen"), "meen|mean"),
    "encoders.words.recurrent:cell": (
        lambda _: Half(word_size=2, hidden=2, cell="tensorflo").shapes(3),  # type: ignore[arg-type]
        "tensorflo|tensorflow",
    ),
    "encoders.words.recurrent:padding": (lambda _: pool_max(ONES[None], "zeroes"), "zeroes|zeros"),  # type: ignore[arg-type]
    "encoders.words.words:tokens": (lambda _: WordsEncoder("none", tokens="sbrt"), "sbrt|sbert"),
    "evaluators.probe.items:features": (lambda _: combine_sides(ONES, ONES, "abs_mull"), "abs_mull|abs_mul"),  # type: ignore[arg-type]
    "evaluators.probe.minibatch:optimiser": (lambda _: parse_optimiser("adma"), "adma|adam"),
    "evaluators.probe.minibatch:setting of optimiser": (
        lambda _: parse_optimiser("sgd,momentun=0.9"),
        "momentun|momentum",
    ),
    "evaluators:evaluator": (lambda _: EVALUATORS.load("prob"), "prob|probe"),
    "boards.published:published row": (
        lambda _: published_row("simcse/table-5/unsup-simcse-bert-bas"),
        "unsup-simcse-bert-bas|simcse/table-5/",
    ),
    "boards.render:format": (lambda _: check_format("markdwn"), "markdwn|markdown"),
    "boards.render.figures:format": (lambda _: render_comparison(NO_PAIRS, "latx"), "latx|latex"),
    "boards.tables.columns:rounding": (
        lambda _: measured_averages(["a"], {"a": {(0, 0): 1.0}}, AverageFacts(task="a", rounding="nevr"), 2),
        "nevr|never",
    ),
    "boards.tables.table:choice of --show": (lambda _: check_show("mesured"), "mesured|measured"),
    "recipes.plan:measure": (lambda _: validator(SPLIT, measure="cosin"), "cosin|cosine"),
    "studies.sweep:search": (lambda folder: sweep(folder, search="gird").search, "gird|grid"),
    "studies.sweep:split of": (
        lambda folder: sweep(folder).check_development("stsb", "validaton", where="[decide]"),
        "validaton|validation",
    ),
    "studies.sweep:metric": (
        lambda folder: decided(read_result(MEASURED), "pearson"),
        "pearson|pearson.all",
    ),
    "recipes.trainer:trainer": (lambda _: TRAINERS.load_own("lop"), "lop|loop"),
    "studies.reproduction:ablation": (lambda _: load_ablation("simcse-3", CARDS), "simcse-3|simcse-table-3"),
    "training.translation:decoding mode": (lambda _: Decoding(mode="gredy"), "gredy|greedy"),  # type: ignore[arg-type]
    "training.loop.optimisers:optimiser": (lambda _: check_names(training(optimiser="adamv")), "adamv|adamw"),
    "training.loop.optimisers:schedule": (lambda _: check_names(training(schedule="linearr")), "linearr|linear"),
    "training.loop.selection:keep": (lambda _: chosen_by(keep="bst").kept, "bst|best"),
    "training.loop.selection:patience_counts": (
        lambda _: chosen_by(patience=1, patience_counts="decline").out_of_patience(),
        "decline|declines",
    ),
    "training.methods:method": (lambda _: METHODS.load("simcs"), "simcs|simcse"),
    "training.objectives.contrastive:similarity": (
        lambda _: info_nce(ONES, ONES, temperature=1.0, similarity="cos"),  # type: ignore[arg-type]
        "cos|cosine",
    ),
    "training.objectives.pairs:pair feature": (lambda _: pair_features(ONES, ONES, ["u+v"]), "u+v|u*v"),
    "training.objectives.pairs:pair features": (lambda _: pair_features(ONES, ONES, "sbrt"), "sbrt|sbert"),
    "training.objectives.ranking:formulas": (
        lambda _: list_mle(torch.ones(2, 2), torch.ones(2, 2), formulas="relased"),  # type: ignore[arg-type]
        "relased|released",
    ),
    "training.objectives.self_guided:self-guided variant": (
        lambda _: self_guided(ONES, ONES[:, None], temperature=1.0, variant="opt4"),
        "opt4|opt",
    ),
    "training.spans:span strategy": (lambda _: sample_spans(99, strategy="bothh", **SPANS), "bothh|both"),
    "training.words.gru_halves:condition": (
        lambda _: SkipThoughts(3, 2, 2, condition="step"),  # type: ignore[arg-type]
        "step|steps",
    ),
}
SPANS: dict[str, Any] = {"anchors": 1, "positives": 1, "min_len": 2, "max_len": 4, "rng": np.random.default_rng(0)}
MAKING: dict[str, Any] = {"catalogue": CARDS, "open_tokenizer": None}


def unused(protocol: str) -> None:
    choice = ProtocolChoice(protocol)
    choice.scored(load_task("quickstart-en"), None)
    choice.check_all_used()


def offers(message: str, names: str) -> bool:
    """Whether the wrong name is told, and the right one offered."""
    wrong, _, right = names.partition("|")
    asked, _, offered = message.partition("; did you mean ")
    return message.startswith("unknown ") and wrong in asked and (not right or right in offered)


@pytest.mark.parametrize("kind", CALLS)
def test_a_name_in_no_table_is_refused(kind: str, tmp_path: Path) -> None:
    call, names = CALLS[kind]
    with pytest.raises(StsbenchError) as caught:
        call(tmp_path)
    assert offers(str(caught.value), names), str(caught.value)


COMMANDS = {
    "analysis.run:analysis": ("analyze spectrm -e letters", "spectrm|spectrum"),
    "cli.analyze:kind of file for --out": ("analyze spectrum --out a.jsn", "jsn|json"),
    "bench.run:executor": ("run --on rai", "rai|ray"),
    "studies.sweep:place of a sweep": ("sweep heat.toml --base minilm --on rai", "rai|ray"),
    "recipes.train:place of training": ("train simcse-small --on rai", "rai|ray"),
    "boards.tables.build:suite": ("leaderboard --suite stss", "stss|sts"),
    "cli.compare:format": ("compare a b --format latx", "latx|latex"),
    "cli.check:rule": ("check results --against results --rule statistica", "statistica|statistical"),
    "cli.convert:conversion": ("convert infersnt a b", "infersnt|infersent"),
    "cli.data:task, suite or corpus": ("data fetch stsbb", "stsbb|stsb"),
    "cli.export:format": ("export --format mteeb", "mteeb|mteb"),
    "cli.showing:language": ("list tasks --language jaa", "jaa|ja"),
    "cli.showing:list": ("list task", "task|tasks"),
    "cli.showing:name": ("show stsbb", "stsbb|stsb"),
    "cli.new:role in --columns": ("new task a.csv --columns golt=x", "golt|gold"),
    "cli.scores:key of --variants": ("run minilm --variants dimension=2", "dimension|dimensions"),
    "cli.names:encoder": ("export --format mteb -e leters", "leters|letters"),
    "cli.timing:format": ("timing --format jsn", "jsn|json"),
    "boards.published.specs:table": ("leaderboard --table simcse-55", "simcse-55|simcse-5"),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_takes_no_name_that_is_in_no_table(
    kind: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command, (line, names) = Command(capsys), COMMANDS[kind]
    Path("tests").symlink_to(Path(__file__).parent)
    assert command("run", "-e", "tests.made_up:Encoder", "--tasks", "quickstart-en").code == 0
    assert offers(command.refused(*line.split(" ")), names)


def prompted(given: Any, **params: Any) -> Any:
    """PromptBERT, which needs a student of its own pooling."""
    return PromptBERT(student(given.checkpoint.folder, pooling="mask"), **params)


def denoising(given: Any, **params: Any) -> Any:
    """TSDAE, which needs a student's language model."""
    return TSDAE(student(given.checkpoint.folder, language_model=True), **{"words": "whitespace", **params})


METHODS_TAKE: list[tuple[str, Any, dict[str, Any], str]] = [
    ("sbert:positives", AnglE, {"positives": "releasd"}, "releasd|released"),
    ("sbert:doubled_texts", AnglE, {"doubled_texts": "dropp"}, "dropp|drop"),
    ("simcse:loss", SimCSE, {"loss": "symetric"}, "symetric|symmetric"),
    ("simcse:views", SimCSE, {"views": "pair"}, "pair|pairs"),
    ("simcse:mlm_decoder", SimCSE, {"mlm_weight": 0.1, "mlm_decoder": "tie"}, "tie|tied"),
    ("simcse:positive", SimCSEPositives, {"positive": "crob"}, "crob|crop"),
    ("after_simcse:variant", ESimCSE, {"variant": "release"}, "release|released"),
    ("diffcse:variant", DiffCSE, {"variant": "papers"}, "papers|paper"),
    ("self_guided:variant", SelfGuided, {"variant": "opt4"}, "opt4|opt"),
    ("is_bert:activation", ISBERT, {"activation": "relo"}, "relo|relu"),
    ("views:objective", ConSERT, {"objective": "joined"}, "joined|joint"),
    ("views:sides", ConSERT, {"sides": "men"}, "men|mean"),
    ("views:view", ConSERT, {"views": ("shufle", "none")}, "shufle|shuffle"),
    ("promptbert:validation", prompted, {"validation": "relased"}, "relased|released"),
    ("after_simcse:ranking", RankCSE, {"teachers": ["minilm"], "ranking": "listmll"}, "listmll|listmle"),
    ("denoising:decoder", denoising, {"decoder": "tide"}, "tide|tied"),
    ("denoising:words", denoising, {"words": "whitespce"}, "whitespce|whitespace"),
    ("sbert:views", SBERTTriplets, {"views": "triplet"}, "triplet|triplets"),
    ("views:operator", CLEAR, {"first": "reordr"}, "reordr|reorder"),
    ("views:projection", CLEAR, {"first": "reorder", "second": "reorder", "projection": "mlpp"}, "mlpp|mlp"),
]


@pytest.mark.parametrize(("kind", "method", "params", "names"), METHODS_TAKE)
def test_a_method_takes_no_name_that_it_does_not_know(
    masked_lm: Any, kind: str, method: Any, params: dict[str, Any], names: str
) -> None:
    with pytest.raises(StsbenchError) as caught:
        method(student(masked_lm), **params)
    assert offers(str(caught.value), names), str(caught.value)


def test_a_head_starts_as_one_of_two(masked_lm: Any) -> None:
    with pytest.raises(StsbenchError, match="^unknown head 'fresch'; did you mean 'fresh'"):
        student(masked_lm, pooling="cls", head="fresch")


def test_token_removal_counts_in_one_of_two_ways(masked_lm: Any) -> None:
    with pytest.raises(StsbenchError, match="^unknown count 'papers'; did you mean 'paper'"):
        TokenRemovalEncoder(str(masked_lm), k=1, count="papers")  # type: ignore[arg-type]


def test_a_corpus_is_made_in_one_of_the_ways(tmp_path: Path) -> None:
    facts = 'name = "M"\nlicense = "none"\nsource = "none"\nrows = 2\nfile = "m.txt"\ncolumns = {text = "text"}\n'
    write(tmp_path / "trainers" / "corpora.toml", f'[m]\n{facts}[m.make]\nway = "first_row"\nof = "nothing"\n')
    with pytest.raises(StsbenchError, match="^unknown way of making a corpus 'first_row'; did you mean 'first_rows'"):
        make_corpus("m", corpora=tmp_path, catalogue=Catalogue([tmp_path]), open_tokenizer=None)  # type: ignore[arg-type]


OWN_TESTS = {
    "training.student:head",
    "encoders.token_removal:count",
    "data.corpora.making:way of making a corpus",
}


def test_no_refusal_of_a_name_is_untested() -> None:
    methods = {f"training.methods.{kind}" for kind, *_ in METHODS_TAKE}
    said_otherwise = {"encoders.transformer.pooling:pooling"}
    assert {*CALLS, *COMMANDS, *methods, *OWN_TESTS} - said_otherwise == refusals()
