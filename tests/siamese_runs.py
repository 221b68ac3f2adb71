"What the tests of objectives and of attention maps share: encoders of two layers, texts of several lengths."
import torch
from training_runs import PAIRS

from sentnb.encoders import PixelConfig, PixelEncoder, TextEncoder
from sentnb.encoders.text import small_text_encoder, train_wordpiece
from sentnb.renderer import RenderConfig

TEXTS = [first + " and so on"*(i % 3) for i, (first, _) in enumerate(PAIRS)]
TOKENIZER = train_wordpiece(TEXTS, vocab_size=90)


def pixel(dropout=.1, seed=0, **sizes):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=16, num_attention_heads=2, num_hidden_layers=2, intermediate_size=32,
                 max_patches=24, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout) | sizes
    return PixelEncoder(PixelConfig(**sizes), RenderConfig(strategy="words", max_patches=24))


def text(dropout=.1, seed=0, head=False, **sizes):
    torch.manual_seed(seed)
    sizes = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, max_length=24,
                 dropout=dropout) | sizes
    encoder = small_text_encoder(TOKENIZER, **sizes)
    return TextEncoder(encoder.model, TOKENIZER, head=True, max_length=24) if head else encoder


def text_with_head(): return text(head=True)
