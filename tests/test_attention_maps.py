"Attention maps of the encoders: they change no vector, carry gradients, and are those of eager attention."
import pytest
import torch
import torch.nn.functional as F
import transformers as hf
from siamese_runs import TEXTS, TOKENIZER, pixel, text

from sentnb.encoders import TextEncoder

torch.set_num_threads(1)


@pytest.mark.parametrize("make", [pixel, text])
def test_maps_change_no_vector_and_stand_in_the_order_of_the_rows(make, monkeypatch):
    encoder = make(num_hidden_layers=3).eval()
    tensors = encoder.collate([TEXTS[i*7 % 45] for i in range(70)])   # two chunks on a CPU, lengths mixed
    calls, fused = [], F.scaled_dot_product_attention
    def counted(*tensors, **options):
        calls.append(1)
        return fused(*tensors, **options)
    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    with torch.no_grad():
        plain = encoder(*tensors)
        every, calls[:] = len(calls), []
        vectors, maps, mask = encoder(*tensors, attention_layers=(2, 0))
        assert every == 6 and len(calls) == 2, "of three layers one stays fused, in both chunks"
        torch.testing.assert_close(vectors, plain, atol=1e-5, rtol=1e-5)
        assert [list(m.shape) for m in maps] == [[70, 2, mask.shape[1], mask.shape[1]]]*2
        for i in (0, 1, 33, 69): check_row(encoder, TEXTS[i*7 % 45], [m[i] for m in maps], mask[i])
    for m in maps:
        assert not m.transpose(2, 3)[~mask[:, None].expand(-1, 2, -1)].any(), "nothing looks at padding"
        torch.testing.assert_close(m.sum(-1)[mask[:, None].expand(-1, 2, -1)], torch.ones(2*int(mask.sum())))


def check_row(encoder, written, maps, mask):
    "The maps of one row are those that the text has alone."
    _, alone, seen = encoder(*encoder.collate([written]), attention_layers=(2, 0))
    s = int(seen.sum())
    assert int(mask.sum()) == s == seen.shape[1]
    for m, a in zip(maps, alone): torch.testing.assert_close(m[:, :s, :s], a[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", [pixel, text])
def test_maps_are_after_dropout_and_carry_gradients(make):
    encoder = make(dropout=.4).train()
    tensors = encoder.collate(TEXTS[:8])
    torch.manual_seed(0)
    _, (m,), mask = encoder(*tensors, attention_layers=[1])
    real = m[(mask[:, None] & mask[:, :, None])[:, None].expand_as(m)]
    assert .3 < float((real == 0).float().mean()) < .5 and float(real.detach().max()) > 1/.6/24
    (m*torch.randn(m.shape)).sum().backward()
    moved = {name for name, p in encoder.named_parameters() if p.grad is not None and p.grad.abs().sum() > 0}
    for kind in ("query.weight", "key.weight"):
        assert len([name for name in moved if name.endswith(kind)]) == 2
    values = [name for name in moved if name.endswith("value.weight")]
    assert len(values) == 1, "the last layer's values come after its map"


@pytest.mark.parametrize("make", [pixel, text])
def test_layers_that_there_are_not(make):
    encoder = make()
    for wrong in ([], [2], [-1], [0, 0], [.5]):
        with pytest.raises(ValueError, match="different layers from 0 to 1"):
            encoder(*encoder.collate(TEXTS[:2]), attention_layers=wrong)


SIZES = dict(vocab_size=90, hidden_size=16, num_hidden_layers=3, num_attention_heads=2, intermediate_size=16,
             max_position_embeddings=40, pad_token_id=0)
DISTIL = dict(vocab_size=90, dim=16, n_layers=3, n_heads=2, hidden_dim=16, max_position_embeddings=40)
T5 = dict(vocab_size=90, d_model=16, d_kv=8, d_ff=16, num_layers=3, num_heads=2, is_encoder_decoder=False)
MODELS = {
    "roberta": lambda: hf.RobertaModel(hf.RobertaConfig(**SIZES, type_vocab_size=1), add_pooling_layer=False),
    "distilbert": lambda: hf.DistilBertModel(hf.DistilBertConfig(**DISTIL)),
    "t5": lambda: hf.T5EncoderModel(hf.T5Config(**T5)),
    "mpnet": lambda: hf.MPNetModel(hf.MPNetConfig(**SIZES), add_pooling_layer=False),
}


@pytest.mark.parametrize("kind", MODELS)
def test_maps_of_other_architectures_are_those_of_eager_attention(kind):
    torch.manual_seed(0)
    encoder = TextEncoder(MODELS[kind]().eval(), TOKENIZER, max_length=24)
    before, ids = encoder.settings(), encoder.collate([TEXTS[1], TEXTS[2]])
    with torch.no_grad():
        plain, (vectors, maps, mask) = encoder(*ids), encoder(*ids, attention_layers=[1, 2])
        assert encoder.settings() == before and encoder.model.config._attn_implementation in ("sdpa", "eager")
        if kind != "mpnet": encoder.model.set_attn_implementation("eager")
        eager = encoder.model(input_ids=ids[0], attention_mask=ids[1], output_attentions=True).attentions
    torch.testing.assert_close(vectors, plain, atol=1e-5, rtol=1e-4)
    for m, layer in zip(maps, (1, 2)):
        seen = mask[:, None, :, None]
        torch.testing.assert_close(m*seen, eager[layer]*seen, atol=1e-5, rtol=1e-4)
