"""Tiny text encoders that several test files use."""
import random

import torch
from transformers import DistilBertConfig, DistilBertModel, RobertaConfig, RobertaModel

from sentnb.encoders import TextEncoder
from sentnb.encoders.text import small_text_encoder, train_wordpiece

WORDS = ("the a cat dog child sings sleeps plays on in under old small sofa garden table "
         "чашка кошка спит на диване é naïve").split()
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=2 + i % 9)) for i in range(200)] + ["猫在睡觉。", "A cat."]*5


def tiny(tokenizer, pooling="mean", **config) -> TextEncoder:
    torch.manual_seed(0)
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, max_length=24)
    return small_text_encoder(tokenizer, **sizes, pooling=pooling, **config).eval()


def tiny_roberta(tokenizer) -> TextEncoder:
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=64, max_position_embeddings=20, type_vocab_size=1,
        pad_token_id=0, bos_token_id=2, eos_token_id=3)
    return TextEncoder(RobertaModel(config, add_pooling_layer=False).eval(), tokenizer)


def tiny_distilbert() -> TextEncoder:
    torch.manual_seed(0)
    tokenizer = train_wordpiece(TEXTS, 120)
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=2, n_heads=2, hidden_dim=64,
                              max_position_embeddings=64)
    return TextEncoder(DistilBertModel(config).eval(), tokenizer)
