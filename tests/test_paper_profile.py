"""The paper profile of each experiment, end to end on tiny checkpoints of the published layouts: what is loaded by name is loaded as it will be, only the data and the steps are small."""
import csv
import json

import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForPreTraining, ByT5Tokenizer, CanineConfig, CanineModel, CanineTokenizer, T5Config, T5ForConditionalGeneration

from sentnb import corpora, experiments
from sentnb.encoders import PixelConfig, PixelEncoder
from sentnb.encoders.text import train_wordpiece
from sentnb.renderer import RenderConfig

WIDTH, TEXT = 24, dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)


def bert(folder):
    "BERT's, mBERT's: with both heads of pre-training."
    tokenizer = train_wordpiece(corpora.microworld_texts(20, n=200), 400)
    tokenizer.save_pretrained(folder)
    BertForPreTraining(BertConfig(vocab_size=len(tokenizer), **TEXT)).save_pretrained(folder)


def canine(folder):
    CanineTokenizer().save_pretrained(folder)
    CanineModel(CanineConfig(max_position_embeddings=2048, num_hash_buckets=2048, **TEXT)).save_pretrained(folder)


def byt5(folder):
    ByT5Tokenizer().save_pretrained(folder)
    T5ForConditionalGeneration(T5Config(vocab_size=384, d_model=WIDTH, d_kv=12, d_ff=48, num_layers=2, num_decoder_layers=1, num_heads=2, feed_forward_proj="gated-gelu", tie_word_embeddings=False)).save_pretrained(folder)


def pixel(folder, head=False):
    "PIXEL's: three channels, 529 positions, a decoder; Pixel-Linguist's has the extra layer instead."
    folder.mkdir()
    encoder = PixelEncoder(PixelConfig(num_channels=3, max_patches=529, pixel_normalisation=False, head=head, **TEXT), RenderConfig())
    save_file(encoder.state_dict() | ({} if head else {"decoder.mask_token": torch.zeros(1, 1, 16)}), folder/"model.safetensors")
    config = dict(model_type="pixel", hidden_size=WIDTH, num_attention_heads=2, num_hidden_layers=2, intermediate_size=48, num_channels=3, image_size=[16, 8464])
    (folder/"config.json").write_text(json.dumps(config))


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("published")
    for seed, (name, make) in enumerate(dict(bert=bert, canine=canine, byt5=byt5, pixel=pixel, linguist=lambda path: pixel(path, head=True)).items()):
        torch.manual_seed(seed)
        make(folder/name)
    words = sorted({word.strip(".,").lower() for text in corpora.microworld_texts(20, n=400) for word in text.split()})
    (folder/"glove.txt").write_text("".join(f"{word} {' '.join(f'{x:.3f}' for x in torch.randn(8).tolist())}\n" for word in words), encoding="utf-8")
    return {path.stem: str(path) for path in folder.iterdir()}


FEW = dict(data="microworld", threads=1)
STEPS = dict(visual_steps=2, visual_batch=8, reasoning_steps=2)
EXPERIMENTS = {
    "01_robustness": lambda m: dict(models={"BERT": m["bert"], "PIXEL": m["pixel"]}, overrides=dict(**FEW, pairs=20, draws=1, redraws=5, words=10, rates=[0.5])),
    "02_vanilla_geometry": lambda m: dict(models={"BERT": m["bert"], "PIXEL": m["pixel"], "GloVe": m["glove"]}, overrides=dict(**FEW, pairs=20, redraws=5)),
    "03_alignment": lambda m: dict(overrides=dict(**FEW, **STEPS, base=m["pixel"], text_bases={"BERT": m["bert"]}, topical_steps=2, batch=8, checkpoints=1, map_texts=60, pairs=10, redraws=5)),
    "04_language_models": lambda m: dict(overrides=dict(**FEW, **STEPS, BERT=m["bert"], mBERT=m["bert"], CANINE=m["canine"], ByT5=m["byt5"], PIXEL=m["pixel"], all_best=m["linguist"], reasoning_batch=8, looks=1, pairs=20, redraws=5, blocks=60, block_words=20)),
    "05_leapfrog": lambda m: dict(overrides=dict(**FEW, **STEPS, start=m["pixel"], bilingual=["fr", "zh"], iterations=1, ensemble=["mixture"], topical_steps=2, bilingual_steps=2, parallel_steps=2, revisit_steps=2, batch=8, growth_points=1, cloud_sentences=8)),
    "06_retrieval": lambda m: dict(overrides=dict(**FEW, **STEPS, base=m["pixel"], shipped=m["linguist"], ensemble=["mixture"], topical_steps=2, batch=8)),
    "07_micse_lowshot": lambda m: dict(overrides=dict(**FEW, base=m["bert"], sentences=4000, pool=6000, draws=2, steps=1, batch=4, warmup=0, queue=4, projection=16, pairs=10, permutations=20)),
    "08_micse_attention": lambda m: dict(overrides=dict(**FEW, base=m["bert"], seeds=1, sentences=100, steps=2, batch=8, warmup=1, queue=8, held_out=20, trees="microworld", parsed=60, tree_pairs=10, fitted=10, slices=[1, 1], pairs=20, redraws=5)),
    "15_beyond": lambda m: dict(overrides=dict(**FEW, pixel_base=m["pixel"], text_base=m["bert"], seeds=1, sizes=[20, 40], steps=2, batch=8, warmup=1, queue=8, held_out=10, pairs=20)),
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_paper_profile(name, models, tmp_path, monkeypatch):
    for variable, value in dict(SENTNB_FIGURES=tmp_path/"figures", SENTNB_CACHE=tmp_path/"cache", HF_HUB_OFFLINE="1").items(): monkeypatch.setenv(variable, str(value))
    experiments.run(name, "paper", EXPERIMENTS[name](models), progress=False)
    folder = tmp_path/"figures"/name/"paper"
    with open(folder/"numbers.csv", newline="", encoding="utf-8") as file: assert len(list(csv.DictReader(file))) > 5
    told = json.loads((folder/"run.json").read_text(encoding="utf-8"))
    assert told["profile"] == "paper" and any(path in json.dumps(told["settings"]) for path in models.values())
