"""The paper profile of each experiment, end to end: what is loaded by name is loaded as it will be, from tiny
checkpoints of the published layouts; only the data and the numbers that cost time are small.

Nothing is entered here for a new experiment: what is loaded and what is small is read from its table."""
import ast
import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import (
    BertConfig, BertForPreTraining, ByT5Tokenizer, CanineConfig, CanineModel, CanineTokenizer, T5Config,
    T5ForConditionalGeneration)

from sentnb import corpora, experiments
from sentnb.encoders import PixelConfig, PixelEncoder
from sentnb.encoders.text import train_wordpiece
from sentnb.renderer import RenderConfig

ROOT = Path(__file__).resolve().parent.parent
WIDTH, TEXT = 24, dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)


def bert(folder):
    "BERT's, mBERT's: with both heads of pre-training."
    tokenizer = train_wordpiece(corpora.microworld_texts(20, n=200), 400)
    tokenizer.save_pretrained(folder)
    BertForPreTraining(BertConfig(vocab_size=len(tokenizer), **TEXT)).save_pretrained(folder)


def canine(folder):
    CanineTokenizer().save_pretrained(folder)
    config = CanineConfig(max_position_embeddings=2048, num_hash_buckets=2048, **TEXT)
    CanineModel(config).save_pretrained(folder)


def byt5(folder):
    ByT5Tokenizer().save_pretrained(folder)
    sizes = dict(d_model=WIDTH, num_layers=2, num_decoder_layers=1, num_heads=2, d_kv=12, d_ff=48)
    config = T5Config(vocab_size=384, feed_forward_proj="gated-gelu", tie_word_embeddings=False, **sizes)
    T5ForConditionalGeneration(config).save_pretrained(folder)


def pixel(folder, head=False):
    "PIXEL's: three channels, 529 positions, a decoder; Pixel-Linguist's has the extra layer instead."
    folder.mkdir()
    sizes = dict(num_channels=3, max_patches=529, pixel_normalization=False, head=head)
    weights = PixelEncoder(PixelConfig(**sizes, **TEXT), RenderConfig()).state_dict()
    if not head: weights["decoder.mask_token"] = torch.zeros(1, 1, 16)
    save_file(weights, folder/"model.safetensors")
    config = dict(model_type="pixel", num_channels=3, image_size=[16, 8464], **TEXT)
    (folder/"config.json").write_text(json.dumps(config))


def glove(folder):
    texts = corpora.microworld_texts(20, n=400)
    words = {word.strip(".,").lower() for text in texts for word in text.split()}
    lines = [f"{word} {' '.join(f'{x:.3f}' for x in torch.randn(8).tolist())}\n" for word in sorted(words)]
    folder.with_suffix(".txt").write_text("".join(lines), encoding="utf-8")


MAKERS = dict(bert=bert, canine=canine, byt5=byt5, pixel=pixel, glove=glove,
              linguist=lambda folder: pixel(folder, head=True))
PUBLISHED = { # a name on the Hub -> the layout that stands in for it
    "bert-base-uncased": "bert", "google-bert/bert-base-uncased": "bert", "FacebookAI/roberta-base": "bert",
    "google-bert/bert-base-multilingual-cased": "bert", "google/canine-s": "canine",
    "google/byt5-base": "byt5", "Team-PIXEL/pixel-base": "pixel", "stanfordnlp/glove:glove.6B.zip": "glove",
    "Pixel-Linguist/Pixel-Linguist-v0": "linguist"}
SMALL = dict(data="microworld", trees="microworld", threads=1, seeds=1, pairs=20, redraws=5, draws=2)
MOST = dict(steps=2, batch=8, queue=8, warmup=1) # of every row whose name ends so
AS_PUBLISHED = ("patches", "limit", "length", "tokens") # and these stay


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    "A name on the Hub -> a tiny checkpoint."
    folder = tmp_path_factory.mktemp("published")
    for seed, (layout, make) in enumerate(MAKERS.items()):
        torch.manual_seed(seed)
        make(folder/layout)
    paths = {path.stem: str(path) for path in folder.iterdir()}
    return {name: paths[layout] for name, layout in PUBLISHED.items()}


def literal(node: ast.AST, named: dict[str, ast.AST]):
    "The value of an expression of literals, and of names that are given to literals; None of another."
    try: return ast.literal_eval(named.get(getattr(node, "id", ""), node))
    except ValueError: return None


def table_of(path: Path) -> dict[str, tuple]:
    "Setting -> its values at demo and at paper, from the notebook's table."
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    named = {node.targets[0].id: node.value for node in nodes
             if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    for node in nodes:
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict"): continue
        rows = {keyword.arg: getattr(keyword.value, "elts", ()) for keyword in node.keywords}
        if rows and all(len(row) == 3 for row in rows.values()):
            return {name: (literal(row[0], named), literal(row[2], named)) for name, row in rows.items()}
    return {}


def stand_ins(value, models: dict[str, str]):
    "The value with tiny checkpoints for the published ones, and whether there was one."
    if isinstance(value, dict):
        parts = {key: stand_ins(part, models) for key, part in value.items()}
        return {key: part for key, (part, _) in parts.items()}, any(known for _, known in parts.values())
    known = isinstance(value, str) and value in models
    return (models[value] if known else value), known


def small(name: str, demo, paper):
    "What costs little: of two numbers the smaller, of two lists the shorter (None is all); at most MOST."
    if name in SMALL: return SMALL[name]
    if isinstance(demo, (list, tuple)) and isinstance(paper, (list, tuple, type(None))):
        return list(demo if paper is None or len(demo) <= len(paper) else paper) # papermill knows no tuples
    if type(demo) is int and type(paper) in (int, type(None)) and not name.endswith(AS_PUBLISHED):
        limits = [most for end, most in MOST.items() if name.endswith(end)]
        return min(demo, demo if paper is None else paper, *limits)
    return paper


def overrides(path: Path, models: dict[str, str]) -> tuple[dict, bool]:
    "The settings to replace, and whether one of them is a published checkpoint."
    values, loads = {}, False
    for name, (demo, paper) in table_of(path).items():
        value, known = stand_ins(paper, models)
        if not known: value = small(name, demo, paper)
        loads |= known
        if value != paper: values[name] = value
    return values, loads


PAPERS = sorted((ROOT/"nbs").glob("[01][0-9]_*.ipynb")) # from 20 on: our own
EXPERIMENTS = [path for path in PAPERS if overrides(path, PUBLISHED)[1]]


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_paper_profile(path, models, tmp_path, monkeypatch):
    places = dict(SENTNB_FIGURES=tmp_path/"figures", SENTNB_CACHE=tmp_path/"cache", HF_HUB_OFFLINE="1")
    for variable, value in places.items(): monkeypatch.setenv(variable, str(value))
    values, _ = overrides(path, models)
    experiments.run(path, "paper", dict(overrides=values), progress=False)
    folder = tmp_path/"figures"/path.stem/"paper"
    with open(folder/"numbers.csv", newline="", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) > 5
    record = json.loads((folder/"run.json").read_text(encoding="utf-8"))
    assert record["profile"] == "paper"
    settings = json.dumps(record["settings"])
    assert any(tiny in settings for tiny in models.values()), "it loads what is published"


def test_the_tables_are_read():
    names = {path.stem for path in EXPERIMENTS}
    assert {"01_robustness", "05_leapfrog", "08_micse_attention"} <= names
    demo, paper = table_of(ROOT/"nbs"/"05_leapfrog.ipynb")["iterations"]
    assert demo < paper
    assert small("visual_steps", 20, 1300) == 2 and small("rates", [.5], [.1, .2]) == [.5]
    assert small("lr", 1e-3, 3e-5) == 3e-5 and small("strategy", "words", "continuous") == "continuous"
