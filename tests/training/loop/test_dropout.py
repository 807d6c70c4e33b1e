"""Dropout from sixteen bits an element: its rate, its scale, its gradient, and draws that repeat."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from stsbench.training.loop.dropout import FewBitsDropout, draw_fewer_bits, draw_kept


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.15, 0.5, 0.9])
def test_so_many_are_dropped_and_the_mean_stays(rate):
    torch.manual_seed(0)
    n = 1_000_003
    keep, grown = draw_kept(torch.Size([n]), rate)
    deviation = (rate * (1 - rate) / n) ** 0.5
    assert abs(float((~keep).double().mean()) - rate) < 4 * deviation + 2**-17
    assert grown * (1 - rate) == pytest.approx(1, rel=1e-4)
    # Neighbours share a draw of torch's: none says anything of another.
    for apart in (1, 2, 3, 4, 5):
        both = float((~keep[apart:] & ~keep[:-apart]).double().mean())
        assert abs(both - rate**2) < 5 * deviation


def test_what_is_kept_grows_and_has_the_gradient_of_what_was_done():
    torch.manual_seed(0)
    values = torch.randn(7, 5, 3, dtype=torch.float64, requires_grad=True)
    result = FewBitsDropout(0.25)(values)
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert {0.0, 4 / 3} == set(gradient.flatten().tolist())
    assert torch.equal(gradient * values, result)


def test_draws_repeat_with_torch_s_own_generator_and_where_results_are_computed_again():
    drop, values = FewBitsDropout(0.5), torch.ones(1000, requires_grad=True)
    found = []
    for _ in range(2):
        torch.manual_seed(3)
        found.append(drop(values))
    assert torch.equal(*found) and not torch.equal(found[0], drop(values))
    result = checkpoint(drop, values, use_reentrant=False)
    (gradient,) = torch.autograd.grad(result.sum(), values)
    assert torch.equal(gradient, result)


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_none_and_all_are_as_torch_has_them_and_so_are_tests(rate):
    values = torch.ones(9)
    assert torch.equal(FewBitsDropout(rate)(values), torch.nn.Dropout(rate)(values))
    assert torch.equal(FewBitsDropout(0.5).eval()(values), values)


def test_plain_dropouts_alone_are_replaced_with_their_rate_and_mode():
    class Own(torch.nn.Dropout):
        pass

    plain = torch.nn.Dropout(0.3)
    module = torch.nn.Sequential(plain, Own(0.2), torch.nn.Dropout(0.1, inplace=True))
    plain.eval()
    draw_fewer_bits(torch.nn.Sequential(module))
    assert [type(one) for one in module] == [FewBitsDropout, Own, torch.nn.Dropout]
    assert module[0].p == 0.3 and not module[0].training
