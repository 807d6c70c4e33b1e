"""Tests mirror the rooms: a module has a test file of its name at its place, or stands here with the file that covers it."""

import ast
from functools import cache
from pathlib import Path

import pytest

import stsbench

PACKAGE, TESTS = Path(stsbench.__file__).parent, Path(__file__).parent
FACES = ("__init__", "__main__")
COVERED = {
    "analysis/test_closeness.py": ["analysis.run", "analysis.seams"],
    "analysis/test_shift.py": ["analysis.paired"],
    "bench/cluster/test_executor.py": ["bench.cluster.hands"],
    "bench/test_embedder.py": ["bench.fit_texts", "bench.shelf"],
    "bench/test_executor.py": ["bench.work"],
    "bench/test_iterate.py": ["bench.listener", "bench.score"],
    "bench/test_resume.py": ["bench.existing", "bench.run"],
    "drafts/test_draft.py": ["cards.toml_text"],
    "drafts/test_hub.py": ["data.hub.dataset"],
    "check/test_gate.py": [
        "check.judged",
        "check.lock",
        "check.reports",
        "check.significance",
        "check.tolerance",
    ],
    "check/test_means.py": ["check.published"],
    "check/test_verify.py": ["check.intervals", "check.remade"],
    "cli/test_analyze.py": ["analysis.write"],
    "cli/test_cli.py": ["cli.app", "cli.exit_codes"],
    "cli/options/test_binding.py": [
        "cli.options.analyses",
        "cli.options.catalogue",
        "cli.options.encoders",
        "cli.options.new",
        "cli.options.scores",
        "cli.options.shared",
    ],
    "cli/test_board.py": ["leaderboard.tables.asked"],
    "cli/test_export.py": ["leaderboard.tables.intervals", "leaderboard.tables.ranks"],
    "compare/test_ties.py": ["compare.row_items"],
    "cli/test_compare_check.py": ["cli.check", "cli.compare", "leaderboard.render.comparison"],
    "cli/test_doctor.py": ["cli.diagnosis", "cli.hub_trial"],
    "cli/test_parity.py": ["bench.side"],
    "cli/test_run.py": ["cli.dry_run"],
    "cli/test_terminal.py": ["cli.printing", "cli.screen", "cli.streams"],
    "cli/test_train.py": ["recipes.forecast", "recipes.outline"],
    "cli/test_who.py": ["encoders.checkpoints.families"],
    "compare/test_comparison.py": ["compare.align", "compare.items", "results.comparable"],
    "data/corpora/test_making.py": [
        "data.corpora.documents",
        "data.hub.shards",
        "encoders.transformer.token_counts",
    ],
    "data/corpora/test_load.py": ["data.corpora.corpus", "data.corpora.files"],
    "data/corpora/test_overlap.py": ["data.corpora.sentences"],
    "data/test_coco.py": ["data.readers.captions"],
    "data/test_split_checks.py": ["data.verify"],
    "data/test_hostile_files.py": ["data.json_lines"],
    "data/test_hub.py": ["data.hub.failures", "data.hub.files", "data.hub.names", "data.hub.quiet"],
    "data/test_hub_checkpoints.py": ["data.hub.listing"],
    "data/hub/test_archives.py": ["data.hub.unpacking"],
    "data/test_hub_sources.py": ["data.sources", "data.task"],
    "data/test_readers.py": ["data.readers.pairs", "data.readers.text"],
    "cards/test_strict.py": ["cards.facts"],
    "drafts/test_encoder.py": ["encoders.told"],
    "drafts/test_task.py": ["drafts.task_card"],
    "encoders/checkpoints/test_sealed.py": ["encoders.checkpoints.digest_cache"],
    "cli/test_bad_checkpoints.py": ["encoders.checkpoints.sizes"],
    "encoders/test_facts.py": ["encoders.seams"],
    "encoders/engine/test_embed.py": ["encoders.engine.returned"],
    "encoders/engine/test_drift.py": ["encoders.path_names"],
    "encoders/test_whitening.py": ["encoders.fitted.moments"],
    "encoders/fitted/test_flow_encoder.py": [
        "encoders.fitted.fitted",
        "encoders.fitted.flow_recipe",
        "encoders.fitted.flow_training",
        "encoders.transformer.dropout",
    ],
    "encoders/transformer/test_decoders.py": ["encoders.transformer.adapters", "encoders.transformer.templates"],
    "encoders/transformer/test_encoder.py": ["encoders.transformer.backbone", "encoders.transformer.opening"],
    "encoders/served/test_openai.py": [
        "encoders.served.apis",
        "encoders.served.link",
        "encoders.served.rates",
        "encoders.served.said",
        "encoders.served.sizes",
    ],
    "encoders/runtimes/test_backends.py": [
        "encoders.runtimes.export",
        "encoders.runtimes.model",
        "encoders.runtimes.network",
        "encoders.runtimes.sessions",
    ],
    "encoders/words/test_convert.py": ["cli.convert", "encoders.words.expansion", "encoders.words.folder"],
    "encoders/words/test_infersent.py": ["encoders.words.recurrent"],
    "evaluators/probe/test_converged.py": [
        "evaluators.probe.features",
        "evaluators.probe.logreg",
        "evaluators.probe.minimise",
        "evaluators.probe.schemes",
    ],
    "evaluators/probe/test_evaluator.py": [
        "evaluators.probe.classifier",
        "evaluators.probe.report",
        "evaluators.seams",
    ],
    "evaluators/probe/test_protocols.py": ["evaluators.probe.minibatch_settings"],
    "evaluators/probe/test_trainers.py": [
        "evaluators.probe.compiled",
        "evaluators.probe.minibatch",
        "evaluators.probe.stacked",
    ],
    "evaluators/test_relatedness.py": ["evaluators.relatedness_kernel"],
    "evaluators/test_retrieval.py": [
        "evaluators.retrieval.evaluator",
        "evaluators.retrieval.maps",
        "evaluators.retrieval.protocols",
        "evaluators.retrieval.ranks",
        "evaluators.retrieval.rows",
    ],
    "interface/test_reading.py": ["interface.comparison"],
    "interface/test_results.py": ["interface.grid", "interface.page"],
    "interface/test_scoring.py": ["interface.progress"],
    "leaderboard/exports/test_model_index.py": ["leaderboard.exports.measured"],
    "leaderboard/exports/test_mteb.py": ["leaderboard.exports.tasks"],
    "leaderboard/published/test_rows.py": ["leaderboard.published.metrics", "leaderboard.published.specs"],
    "leaderboard/tables/test_suite.py": ["leaderboard.tables.averages", "leaderboard.tables.runs"],
    "leaderboard/tables/test_build.py": ["leaderboard.tables.columns", "leaderboard.tables.layout"],
    "leaderboard/test_html.py": [
        "leaderboard.render.html",
        "leaderboard.render.html_table",
        "leaderboard.tables.table",
    ],
    "leaderboard/test_measured_tables.py": ["leaderboard.tables.baseline", "leaderboard.tables.fill"],
    "leaderboard/test_own_tables.py": ["leaderboard.tables.own"],
    "leaderboard/render/test_latex.py": ["leaderboard.render.latex_size"],
    "leaderboard/test_render.py": [
        "leaderboard.render.data",
        "leaderboard.render.markdown",
    ],
    "plots/test_dots.py": ["plots.chart", "plots.panels"],
    "recipes/test_on_ray.py": ["recipes.launchers"],
    "studies/test_sweep.py": ["studies.book", "studies.carriers"],
    "recipes/test_trainer.py": ["recipes.loop_trainer", "recipes.train"],
    "recipes/test_rounds_trainer.py": ["encoders.unfinished", "encoders.trained", "training.loop.selection"],
    "studies/test_reproduction.py": ["studies.beside"],
    "numbers/test_statistics.py": ["numbers.arrays"],
    "results/test_record.py": ["results.folder", "results.items"],
    "cli/test_forgeries.py": ["results.checks"],
    "test_conftest.py": ["settings"],
    "test_fuzz.py": ["encoders.checkpoints.saved"],
    "training/augmentation/test_translation.py": ["training.augmentation.back_translation"],
    "training/methods/test_clear.py": ["training.augmentation.masking"],
    "training/methods/test_cosent.py": ["training.methods.scored_pairs"],
    "training/methods/test_mlm.py": ["training.head"],
    "training/methods/test_two_views.py": ["training.methods.mixcse", "training.methods.simcse_plus_plus"],
    "training/methods/test_promptbert.py": ["training.templates"],
    "training/methods/test_sbert.py": ["training.loop.saving", "training.methods.sbert_regression"],
    "training/loop/test_gather.py": ["training.objectives.arithmetic"],
    "training/loop/test_loop.py": [
        "training.loop.batches",
        "training.loop.curve",
        "training.loop.place",
        "training.seams",
    ],
    "training/loop/test_resuming.py": ["training.words.rounds"],
    "training/test_student.py": ["training.modes"],
    "training/words/test_fastsent.py": ["training.words.vocabulary"],
}
"""Where each module without a test file of its own name is tested."""


def without_namesake() -> set[str]:
    return {
        ".".join(module.with_suffix("").parts)
        for module in (path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.stem not in FACES)
        if not (TESTS / module.parent / f"test_{module.name}").is_file()
    }


@cache
def imports(path: Path) -> set[Path]:
    """The files of ours that a file imports, or gives a registry the address of."""
    texts = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            texts |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("stsbench."):
            texts.add(node.value.partition(":")[0])
    places = [PACKAGE.parent.joinpath(*text.split(".")) for text in texts if text.startswith(("stsbench", "tests"))]
    found = [file for place in places for file in (place.with_suffix(".py"), place / "__init__.py")]
    return {file for file in found if file.is_file()}


def reached(path: Path) -> set[Path]:
    """The files that a test file, its fixtures, and what these import can run."""
    found: set[Path] = set()
    todo = {path, *(folder / "conftest.py" for folder in path.parents if (folder / "conftest.py").is_file())}
    while todo:
        found |= todo
        todo = set().union(*map(imports, todo)) - found
    return found


def test_every_module_has_its_namesake_or_is_listed_once():
    listed = [module for modules in COVERED.values() for module in modules]
    assert sorted(listed) == sorted(without_namesake())


@pytest.mark.parametrize("file", COVERED)
def test_a_file_that_covers_modules_imports_them(file):
    found = reached(TESTS / file)
    missed = [
        module for module in COVERED[file] if PACKAGE.joinpath(*module.split(".")).with_suffix(".py") not in found
    ]
    assert not missed
