"Two processes give the loss and the gradient of one. The file is its own worker, started once a rank."
import sys

import numpy as np
import pytest
import torch
import torch.distributed as dist

from sentnb.losses.contrastive import info_nce
from sentnb.losses.checks import gather

torch.set_num_threads(1)
CASES = {
    "symmetric": dict(),
    "hard negatives": dict(symmetric=False, hard=True, hard_negative_weight=1.),
    "everything": dict(hard=True, queue=True, temperature=.2),
}
SHARES = {"equal": (4, 4), "uneven": (3, 5)}


def model_and_views():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)).double()
    return model, torch.randn(4, 8, 6, dtype=torch.float64)


def loss_of(model, views, case, gathered):
    case = dict(case)
    hard, queue = case.pop("hard", False), case.pop("queue", False)
    a, b, c, old = views
    z = model(torch.cat([a, b, c])).chunk(3) # one forward pass, as in training
    return info_nce(z[0], z[1], hard_negatives=z[2] if hard else None, queue=old[:, :5] if queue else None,
                    gathered=gathered, **case)


def gradient(model): return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).numpy()


def worker(rank, folder):
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    out = {}
    for share, sizes in SHARES.items():
        start = sum(sizes[:rank])
        mine = slice(start, start + sizes[rank])
        for name, case in CASES.items():
            model, views = model_and_views()
            local = torch.nn.parallel.DistributedDataParallel(model)
            own = [*views[:3, mine], views[3]]
            loss = loss_of(local, own, case, gathered=True)
            loss.backward()
            out[f"{share} {name} loss"] = loss.detach().numpy()
            out[f"{share} {name} gradient"] = gradient(model)
    x = torch.full((rank + 1, 2), float(rank), requires_grad=True)
    whole = gather(x)
    (whole * (rank + 1)).sum().backward()
    out.update(whole=whole.detach().numpy(), back=x.grad.numpy())
    np.savez(f"{folder}/{rank}.npz", **out)
    dist.barrier()
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(two_processes, tmp_path_factory): return two_processes(__file__, tmp_path_factory.mktemp("two"))


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", CASES)
def test_two_processes_are_one(ranks, share, name):
    model, views = model_and_views()
    loss = loss_of(model, views, CASES[name], gathered=False)
    loss.backward()
    assert np.abs(gradient(model)).max() > 1e-2 # there is something to compare
    for rank in ranks:
        assert rank[f"{share} {name} loss"] == pytest.approx(loss.item(), abs=1e-12)
        np.testing.assert_allclose(rank[f"{share} {name} gradient"], gradient(model), rtol=0, atol=1e-10)


def test_gather_concatenates_and_sums_back(ranks):
    for rank, out in enumerate(ranks):
        np.testing.assert_array_equal(out["whole"], [[0, 0], [1, 1], [1, 1]])
        np.testing.assert_array_equal(out["back"], np.full((rank + 1, 2), 3.)) # 1 of rank 0, 2 of rank 1


def test_without_gathering_it_would_differ(ranks):
    model, views = model_and_views()
    halves = [loss_of(model, views[:, part], CASES["symmetric"], gathered=False).item()
              for part in (slice(0, 4), slice(4, 8))]
    assert abs(np.mean(halves) - ranks[0]["equal symmetric loss"]) > 1e-2


if __name__ == "__main__": worker(int(sys.argv[1]), sys.argv[2])
