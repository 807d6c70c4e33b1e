"""What makes per-item columns that are not at hand."""

from __future__ import annotations

from stsbench.results.folder import (
    columns_of,
    command_again,
    has_columns,
    lacking_columns,
    lacking_said,
    read_result,
    verified,
    write_result,
)
from stsbench.results.record import items_path
from tests.made import SIMCSE, make_result


def test_columns_are_in_the_result_or_beside_its_file(tmp_path):
    one, bare = make_result(), make_result(score=0.5)
    assert (has_columns(one), has_columns(bare)) == (True, False)
    path = write_result(one, tmp_path)
    assert has_columns(read_result(path))
    items_path(path).unlink()
    assert lacking_columns([read_result(path), one]) == [read_result(path)]
    assert lacking_said([bare]) == "no per-item columns of minilm on sts12"
    assert lacking_said([bare, bare, bare]) == "no per-item columns of minilm on sts12 (and 2 more results)"


def test_the_command_names_what_is_not_usual(tmp_path):
    two = [make_result("minilm", "sts12"), make_result("minilm+pooling=wk(2)", "sts13")]
    assert command_again(two) == "stsbench run --fresh minilm 'minilm+pooling=wk(2)' --tasks sts12,sts13"
    other = make_result(protocol={**SIMCSE, "name": "wmean"}, eval_seed=3, split="validation")
    assert command_again([other]) == (
        "stsbench run --fresh minilm --tasks sts12 --protocol wmean --seeds 3 --split validation"
    )
    assert command_again([*two, make_result("minilm", "stsb", split="validation")]) == (
        f"{command_again(two)} && stsbench run --fresh minilm --tasks stsb --split validation"
    )
    kept = read_result(write_result(make_result(), tmp_path))
    assert command_again([kept]) == f"stsbench run --fresh minilm --tasks sts12 --results {tmp_path}"


def test_results_that_are_verified_may_keep_what_was_read(tmp_path):
    kept = read_result(write_result(make_result(), tmp_path))
    (plain,), (held,) = verified([kept]).results, verified([kept], keep=True).results
    assert not plain.per_item and held.path == plain.path
    items_path(kept.path_in(tmp_path)).unlink()
    assert columns_of(held)["gold"].tolist() == [0.0, 2.5, 5.0] and has_columns(held) and not has_columns(plain)
    assert verified([plain], keep=True).results == [plain]
