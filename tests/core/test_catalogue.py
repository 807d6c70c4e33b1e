"""Every card of the project holds what cards must hold; a user's own cards join or are refused in one line."""

import inspect
import re
from pathlib import Path

import pytest

from stsbench.core.cards import EncoderCard, TaskCard
from stsbench.core.catalogue import Catalogue, read_card
from stsbench.core.errors import CardError, UnknownName
from stsbench.core.parameters import fit
from stsbench.data.readers.registry import READERS
from stsbench.data.task import PACKAGE_DATA
from stsbench.encoders.described import find_family
from stsbench.encoders.kinds import ENCODERS, KINDS
from stsbench.encoders.transformer.pooling import Pooling
from stsbench.evaluators.registry import EVALUATORS
from tests.core.cards import ENCODER, TASK, write

CATALOGUE = Catalogue()
TASKS, ENCODER_CARDS = CATALOGUE.paths("tasks"), CATALOGUE.paths("baselines")
COMMIT = re.compile("[0-9a-f]{7,40}|unpinned")
WIDTH = 34


@pytest.mark.parametrize("task", TASKS)
def test_a_task_card(task):
    card = CATALOGUE.task(task)
    assert card.name and card.paper and card.license and card.languages
    assert "unknown" not in (card.paper, card.license), f"{task}: fill in 'paper' and 'license'"
    assert "by the texts" not in card.note, f"{task}: 'note' is that of the draft"
    evaluator = EVALUATORS.load(card.evaluator)
    assert evaluator.PROTOCOLS
    assert set(card.options) <= set(inspect.signature(evaluator).parameters) - {"protocol"}
    assert card.hub or card.package or card.note, "'note' tells where the files are to be had"
    # Its files stand below the data folder, which is another one on each machine.
    folder = card.local.folder if card.local else ""
    assert not folder.startswith((".", "/")), f"{task}: 'folder' must be below the data folder"
    assert card.hub is None or COMMIT.fullmatch(card.hub.revision)
    assert card.hub is None or card.hub.archive or set(card.hub.splits) == set(card.splits)
    for source in filter(None, (card.local, card.package)):
        assert set(source.files) == set(card.splits)
        for split, facts in card.splits.items():
            assert all(re.fullmatch("([0-9a-f]{64})?", f.sha256) for f in source.files[split])
            named = {f.subset for f in source.files[split] if f.subset}
            assert not named or named == set(facts.subsets)
            assert not facts.subsets or sum(facts.subsets.values()) == facts.n
            assert not facts.labels or sum(facts.labels.values()) == facts.n
            assert not facts.labels or list(facts.labels) == source.params["classes"]
        known = inspect.signature(READERS.load(source.reader), eval_str=True).parameters
        for key, value in source.params.items():
            fit(value, known[key].annotation, where=key)
    if card.package:
        paths = [
            PACKAGE_DATA / card.package.folder / f.path
            for files in card.package.files.values()
            for f in files
        ]
        assert all(path.is_file() for path in paths)


@pytest.mark.parametrize("encoder", ENCODER_CARDS)
def test_an_encoder_card(encoder):
    card = CATALOGUE.encoder(encoder)
    assert card.method and card.backbone and card.paper and card.license
    assert card.name and len(card.name) <= WIDTH
    known = inspect.signature(ENCODERS.load(card.kind), eval_str=True).parameters
    # Anyone must be able to load it: by a Hub id, not by a path of one machine.
    for key in ("model", "file"):
        path = str(card.params.get(key, ""))
        assert not path.startswith((".", "/")), f"{encoder}: '{key}' is a path of your machine"
    is_on_hub = card.kind in KINDS and "/" in str(card.params.get("model", ""))
    # A commit, or "unpinned" where nobody has seen the model's commit.
    if is_on_hub and "revision" in known:
        assert "revision" in card.params, f"{encoder}: 'revision' is missing"
    assert "unknown" not in (card.method, card.paper), f"{encoder}: say what method and paper are"
    for key, value in card.params.items():
        fit(value, known[key].annotation, where=key)
    if card.kind == "transformer":
        assert Pooling.parse(card.params.get("pooling", "mean"))
        assert COMMIT.fullmatch(card.params.get("revision", "unpinned"))


def test_ids_and_names_are_unique():
    for paths, read in ((TASKS, CATALOGUE.task), (ENCODER_CARDS, CATALOGUE.encoder)):
        names = [read(name).name.casefold() for name in paths]
        assert sorted(names) == sorted(set(names))
    ids = [*TASKS, *CATALOGUE.suites(), *ENCODER_CARDS, *CATALOGUE.corpora()]
    # 'show' looks a name up among all of them.
    assert sorted(ids) == sorted(set(ids))
    assert all(re.fullmatch("[a-z0-9][a-z0-9_-]*", name) for name in ids)


@pytest.mark.parametrize("corpus", CATALOGUE.corpora())
def test_a_corpus(corpus):
    facts = CATALOGUE.corpora()[corpus]
    assert facts.name and facts.rows and facts.license and facts.source and facts.columns
    assert COMMIT.fullmatch(facts.revision)
    assert bool(facts.file) != bool(facts.tasks)
    assert set(facts.tasks) <= set(TASKS)
    assert all(set(facts.splits) <= set(CATALOGUE.task(task).splits) for task in facts.tasks)


# A user's own cards.


def test_a_users_folder_joins(tmp_path):
    write(tmp_path / "tasks/mine.toml", TASK)
    write(tmp_path / "baselines/my-encoder.toml", ENCODER)
    write(tmp_path / "tasks/suites.toml", '[both]\nname = "Both"\ntasks = ["mine", "stsb"]')
    both = Catalogue([tmp_path])
    assert set(both.paths("tasks")) == {*TASKS, "mine"}
    assert both.task("mine").splits["test"].n == 2
    assert both.encoder("my-encoder").backbone == "GloVe"
    assert both.suites()["both"].tasks == ["mine", "stsb"]
    assert [name for name in both.suites() if name != "both"] == list(CATALOGUE.suites())
    assert both.task("stsb") == CATALOGUE.task("stsb")


FAMILY = 'ids = ["{0}"]\npooling = "max"\nsource = "https://example.org"\n'


def test_a_users_family_counts_before_ours(tmp_path):
    write(tmp_path / "baselines/families.toml", f"[ours]\n{FAMILY.format('BAAI/bge-*')}")
    both = Catalogue(tmp_path)
    assert list(both.families())[:-1] == list(CATALOGUE.families())
    assert "families" not in both.paths("baselines")
    assert find_family("baai/BGE-base-en-v1.5", both).pooling == "max"
    assert find_family("baai/BGE-base-en-v1.5", CATALOGUE).pooling == "cls_before_pooler"


def test_a_changed_card_is_read_again(tmp_path):
    path = write(tmp_path / "mine.toml", TASK)
    assert read_card(path, TaskCard).name == "Mine"
    write(path, TASK.replace('"Mine"', '"Another"'))
    assert read_card(path, TaskCard).name == "Another"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "tasks/stsb.toml",
            TASK,
            "{0}/tasks/stsb.toml: the id 'stsb' is taken by .*/tasks/stsb.toml; rename one file",
        ),
        (
            "baselines/minilm.toml",
            ENCODER,
            "baselines/minilm.toml: the id 'minilm' is taken by .*; rename one file",
        ),
        (
            "tasks/suites.toml",
            '[sts]\nname = ""\ntasks = []',
            "{0}/tasks/suites.toml: the id 'sts' is taken by .*",
        ),
        (
            "tasks/suites.toml",
            '[stsb]\nname = ""\ntasks = []',
            "{0}/tasks/suites.toml: the id 'stsb' is taken by .*",
        ),
        (
            "tasks/suites.toml",
            '[encodechka-sts]\nname = ""\ntasks = ["stsb"]',
            "mteb-suites.toml: the id 'encodechka-sts' is taken by {0}/tasks/suites.toml; rename",
        ),
        ("tasks/suites.toml", '[own]\nname = ""', r"suites.toml: \[own\]: key 'tasks' is missing$"),
        (
            "tasks/suites.toml",
            "own = 3",
            r"suites.toml: \[own\]: expected a table, got a whole number$",
        ),
        (
            "baselines/families.toml",
            f"[bge]\n{FAMILY.format('BAAI/bge-*')}",
            "families.toml: the id 'bge' is taken by .*; rename one",
        ),
        (
            "baselines/families.toml",
            '[ours]\nids = ["BAAI/*"]\npooling = "max"\n',
            r"families.toml: \[ours\]: key 'source' is missing",
        ),
    ],
)
def test_an_id_taken_twice_and_a_wrong_suite_or_family_are_refused(tmp_path, name, text, message):
    write(tmp_path / name, text)
    with pytest.raises(CardError, match=message.format(tmp_path)):
        both = Catalogue([tmp_path])
        both.paths("baselines")
        both.suites()
        both.families()


@pytest.mark.parametrize(
    ("folder", "message"),
    [
        ("", "none of the folders tasks, baselines, trainers for cards"),
        ("gone", "cards folder '.*gone' does not exist"),
    ],
)
def test_a_folder_without_cards_is_refused(tmp_path, folder, message):
    with pytest.raises(CardError, match=message):
        Catalogue([tmp_path / folder])


def test_unknown_names_offer_the_nearest():
    with pytest.raises(UnknownName, match="mean 'stsb'") as caught:
        CATALOGUE.task("stsbb")
    assert (caught.value.kind, caught.value.name) == ("task", "stsbb")
    with pytest.raises(UnknownName, match="mean 'minilm'") as caught:
        CATALOGUE.encoder("minilmm")
    assert (caught.value.kind, caught.value.name) == ("encoder", "minilmm")
    with pytest.raises(CardError, match="card 'gone.toml' does not exist"):
        read_card(Path("gone.toml"), EncoderCard)


def test_what_replaces_a_task_is_a_task_of_a_later_version():
    catalogue = Catalogue()
    replaced = {
        name: card
        for name in catalogue.paths("tasks")
        if (card := catalogue.task(name)).superseded_by
    }
    assert replaced
    for card in replaced.values():
        later = catalogue.task(card.superseded_by)
        assert (
            later.version > card.version
            and not later.superseded_by
            and later.evaluator == card.evaluator
        )
