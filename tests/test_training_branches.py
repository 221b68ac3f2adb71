"Trees of encoders, each trained once; averages of weights; what pre-training gets from a branch."
import dataclasses
import json
import math

import pytest
import torch
from training_runs import TEXTS, kept, one_stage, quick, same, tiny, tiny_text

from sentnb.encoders import MaskedLanguageModel
from sentnb.training import Branch, InfoNCE, Masked, Stage, TimeIsUp, average_weights, branches, loop


def test_average_weights(tmp_path):
    encoders = [tiny(seed=i) for i in range(3)]
    for i, encoder in enumerate(encoders): quick(encoder, [one_stage(steps=1)], tmp_path/str(i))
    before = [kept(encoder) for encoder in encoders]
    average = average_weights(encoders)
    for name, value in average.state_dict().items():
        assert torch.equal(value, torch.stack([weights[name] for weights in before]).double().mean(0).float())
    assert all(same(encoder.state_dict(), weights) for encoder, weights in zip(encoders, before))
    assert average.encode(["a text"]).shape == (1, 16)
    with torch.no_grad(): next(average.parameters()).add_(1)
    assert same(encoders[0].state_dict(), before[0]), "the average shares no memory with its members"
    assert same(average_weights([encoders[1]]).state_dict(), before[1])
    for wrong in ([tiny(), tiny(num_hidden_layers=2)], [tiny(), tiny(hidden_size=32)]):
        with pytest.raises(ValueError, match="different architectures"): average_weights(wrong)
    with pytest.raises(ValueError, match="no encoders"): average_weights([])


def test_a_branch_is_trained_once_and_goes_on_where_it_was_interrupted(tmp_path, monkeypatch):
    stage, options = one_stage(steps=9), dict(seed=3, show_progress=False)
    whole = Branch.root(tiny(), tmp_path/"whole").grow("A", stage, **options)
    root = Branch.root(tiny(), tmp_path/"pieces")
    before, clock = kept(root.encoder), iter([0., 1., 2., 3.])   # two pieces, then the time is over
    monkeypatch.setattr(branches.time, "monotonic", lambda: next(clock))
    with pytest.raises(TimeIsUp, match="A has completed 8 of 9 steps"):
        root.grow("A", stage, until=2., piece_steps=4, **options)
    monkeypatch.undo()
    resumed = root.grow("A", stage, **options)
    assert resumed.key == whole.key and resumed.history == whole.history
    assert same(resumed.encoder.state_dict(), whole.encoder.state_dict())
    assert same(root.encoder.state_dict(), before), "the parent stays as it is"
    monkeypatch.setattr(loop, "Steps", None)   # no step is taken any more
    again = root.grow("A", stage, until=0., **options)
    assert again.history == whole.history and same(again.encoder.state_dict(), whole.encoder.state_dict())
    assert again.seconds == resumed.seconds > 0
    assert (again.commits, again.pieces) == (resumed.commits, resumed.pieces)
    assert json.loads((resumed.folder/"pieces.json").read_text()) == resumed.pieces
    assert [piece["steps"] for piece in resumed.pieces] == [4, 4, 1]
    assert {piece["commit"] for piece in resumed.pieces} == set(resumed.commits)
    assert resumed.rate == pytest.approx(9/resumed.seconds) and root.rate != root.rate


def test_a_branch_is_known_by_all_that_made_it(tmp_path):
    root, stage = Branch.root(tiny(), tmp_path), one_stage(steps=1)
    def grown(parent=root, name="A", stage=stage, **options):
        return parent.grow(name, stage, show_progress=False, **options)
    first, faster = grown(), dataclasses.replace(stage, learning_rate=.1)
    warmer = dataclasses.replace(stage, objective=InfoNCE(temperature=.1))
    all_different = [
        root, Branch.root(tiny(1), tmp_path), Branch.root(tiny(dropout=0.), tmp_path), first, grown(name="B"),
        grown(seed=1), grown(stage=faster), grown(stage=warmer), grown(weight_decay=.1), grown(first),
        Branch.average([first, root])]
    assert len({branch.key for branch in all_different}) == len(all_different)
    assert grown(save_every=7).key == first.key, "how often it is saved decides nothing"


def test_what_was_chosen_by_one_dev_is_not_given_for_another(tmp_path):
    root, stage = Branch.root(tiny(), tmp_path), one_stage(steps=4, keep="best")
    def grown(dev, **options):
        return root.grow("A", stage, dev=dev, eval_every=1, show_progress=False, **options)
    def size(encoder): return float(encoder.vit.layernorm.weight.detach().norm())
    one = grown(size, dev_key=dict(pairs=100))
    other = grown(lambda encoder: -size(encoder), dev_key=dict(pairs=50))
    assert one.key != other.key and one.dev_scores != other.dev_scores
    assert not same(one.encoder.state_dict(), other.encoder.state_dict())


def test_both_pieces_of_a_killed_training_are_recorded(tmp_path, monkeypatch):
    root, commits = Branch.root(tiny(), tmp_path), iter(["before", "after"])
    monkeypatch.setattr(branches, "code_state", lambda: dict(commit=next(commits), dirty=False))
    options, look_numbers = dict(eval_every=1, save_every=1, show_progress=False), iter(range(3))
    def dies(encoder): return next(look_numbers)   # at its fourth look
    with pytest.raises(StopIteration): root.grow("A", one_stage(steps=6), dev=dies, **options)
    whole = root.grow("A", one_stage(steps=6), dev=lambda encoder: 0., **options)
    assert [(piece["commit"], piece["steps"]) for piece in whole.pieces] == [("before", 3), ("after", 3)]
    assert whole.commits == ("before", "after") and all(piece["seconds"] > 0 for piece in whole.pieces)


def test_to_train_anew_in_pieces_comes_to_an_end(tmp_path):
    root, stage = Branch.root(tiny(), tmp_path), one_stage(steps=5)
    first = root.grow("A", stage, show_progress=False)
    anew = root.grow("A", stage, resume=False, until=math.inf, piece_steps=2, show_progress=False)
    assert [piece["steps"] for piece in anew.pieces] == [2, 2, 1] and anew.history == first.history


def test_a_masked_model_grows_like_any_other(tmp_path, monkeypatch):
    "What pre-training needs: pieces until the time is over, a held-out loss, how fast it was, which commits."
    model = MaskedLanguageModel(tiny_text())
    def held_out(model): return dict(score=-(loss := model.accuracy(TEXTS[:5])["loss"]), loss=loss)
    stage = Stage("pretraining", TEXTS, Masked(), steps=6, batch_size=8, learning_rate=1e-2, warmup_steps=1)
    options = dict(seed=1, dev=held_out, eval_every=2, save_every=2, weight_decay=.05, show_progress=False)
    whole = Branch.root(model, tmp_path/"whole").grow("base", stage, **options)
    clock = iter([0., 1.])
    monkeypatch.setattr(branches.time, "monotonic", lambda: next(clock))
    root = Branch.root(model, tmp_path/"pieces")
    with pytest.raises(TimeIsUp, match="base has completed 2 of 6 steps"):
        root.grow("base", stage, until=.5, piece_steps=2, **options)
    monkeypatch.undo()
    pieces = root.grow("base", stage, **options)
    assert pieces.history == whole.history and same(pieces.encoder.state_dict(), whole.encoder.state_dict())
    losses = [scores["loss"] for scores in pieces.dev_scores.values()]
    assert list(pieces.dev_scores) == [2, 4, 6] and losses[-1] == held_out(pieces.encoder)["loss"] < losses[0]
    assert pieces.rate > 0 and pieces.commits and {piece["device"] for piece in pieces.pieces} == {"cpu"}


def test_a_branch_moves_no_encoder_but_its_own_when_asked(tmp_path):
    class Recorded(torch.nn.Linear):   # records the device, because there is no GPU here
        device = "cpu"

        def to(self, device):
            self.device = str(device)
            return self
    first, second = (Branch(Recorded(3, 3), str(k), tmp_path) for k in range(2))
    assert first.to("cuda") is first and first.encoder.device == "cuda"
    assert second.encoder.device == first.to("cpu").encoder.device == "cpu"
