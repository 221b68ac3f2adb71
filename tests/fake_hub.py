"""A Hub on the loopback interface: the repositories that the paper profile asks for, by their true names and
commits, in their true layouts and columns, tiny and made up. A repository is made when it is first asked for.

The commits are the library's own: what it does not pin is not there. Layouts and columns are those of the
published repositories, not taken from the declarations, so that these are tested by them."""
import contextlib
import csv
import functools
import gzip
import hashlib
import http.server
import io
import itertools
import json
import random
import threading
import urllib.parse
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import torch

from sentnb import corpora
from sentnb.core import LANGUAGES, file_sha256
from sentnb.encoders.checkpoints import MODELS

TEXT = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
MAKERS = {"models": {}, "datasets": {}}


def holds(*names, kind="datasets"):
    "Marks a function(folder, name) that makes repositories of these names."
    def mark(make):
        MAKERS[kind] |= dict.fromkeys(names, make)
        return make
    return mark


# ----------------------------------------------------------------------------------------------- texts

@functools.cache
def world(): return corpora.Microworld(seed=0)


@functools.cache
def english(n): return world().sentences("en", n=n)


def damaged(text, rng):
    words = text.split()
    return " ".join(rng.sample(words, len(words)))


# --------------------------------------------------------------------------------------------- layouts

def parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


def json_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz": path.write_bytes(gzip.compress(text.encode()))
    else: path.write_text(text, encoding="utf-8")


def readme(folder, **configs):
    "The header that names the files: configuration -> split -> path."
    def named(files): return [dict(split=split, path=path) for split, path in files.items()]
    entries = [dict(config_name=config, data_files=named(files)) for config, files in configs.items()]
    (folder/"README.md").write_text(f"---\n{json.dumps(dict(configs=entries))}\n---\n", encoding="utf-8")


def table_of(rows):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["sentence1", "sentence2"])
    writer.writerows(rows)
    return text.getvalue()


# ------------------------------------------------------------------------------------ Pixel-Linguist's

def _sentences_and_damage(name):
    rng = random.Random(name)
    rows = [(text, damaged(text, rng)) for text in english(600)]
    rows[7] = rows[7][0], "" # read as None: the published sets hold some
    return table_of(rows)


@holds("gowitheflow/wiki1M-character-level-all", "gowitheflow/wiki1M-word-condition-shuffle",
       "gowitheflow/wiki1M-word-random-shuffle")
def zipped_table(folder, name):
    file = name.partition("wiki1M-")[2].replace("-", "_")
    with zipfile.ZipFile(folder/f"{file}.csv.zip", "w") as archive:
        archive.writestr(f"{file}.csv", _sentences_and_damage(name))


@holds("gowitheflow/wiki1M-word-character-all-multiple")
def plain_table(folder, name):
    (folder/"word_character_all.csv").write_text(_sentences_and_damage(name), encoding="utf-8")


@holds("princeton-nlp/datasets-for-simcse")
def lines_of_text(folder, name):
    "Beside other files, which are not read."
    lines = "".join(f"{text}\n" for text in english(9_500)) # a thousandth of them is a batch
    (folder/"wiki1m_for_simcse.txt").write_text(lines, encoding="utf-8")
    (folder/"nli_for_simcse.csv").write_text("sent0,sent1,hard_neg\n", encoding="utf-8")


@holds("gowitheflow/wiki-span")
def two_shards(folder, name):
    texts = world().documents("en", n=200)
    rows = [dict(sentence1=a, sentence2=b) for a, b in zip(texts[::2], texts[1::2])]
    for shard in range(2):
        parquet(folder/"data"/f"train-0000{shard}-of-00002-2d95b687398f1018.parquet", rows[shard::2])


@holds("gowitheflow/allnli-sup")
def saved_to_disk(folder, name):
    "Of each premise a pair of all three classes."
    kinds = "entailment", "neutral", "contradiction"
    triples = world().nli("en", n=100)
    rows = [dict(sentence1=premise, sentence2=text, label=kind)
            for (premise, follows, contradicts), (other, *_) in zip(triples, triples[1:] + triples[:1])
            for text, kind in zip((follows, other, contradicts), kinds)]
    table = pyarrow.Table.from_pylist(rows)
    file = folder/"data-00000-of-00001.arrow"
    with pyarrow.ipc.new_stream(file, table.schema) as stream: stream.write_table(table)
    features = {column: dict(dtype="string", _type="Value") for column in table.column_names}
    (folder/"dataset_info.json").write_text(json.dumps(dict(features=features)), encoding="utf-8")


def _translated(n):
    "English and its translation, in the nine languages."
    return {l: world().parallel("en", l, n=n) for l in LANGUAGES[1:]}


@holds("gowitheflowlab/parallel-9")
def translations_and_a_label(folder, name):
    rows = [dict(sentence1=a, sentence2=b, label=1.) for pairs in _translated(40).values() for a, b in pairs]
    parquet(folder/"data"/"train-00000-of-00001.parquet", rows)


@holds("gowitheflowlab/parallel-small-w-nli", "gowitheflowlab/parallel-medium-w-nli")
def translations_and_inference(folder, name):
    "In one list, of several files."
    pairs = [pair for pairs in _translated(20).values() for pair in pairs]
    pairs += [(premise, follows) for premise, follows, _ in world().nli("en", n=60)]
    rows = [{"English": a, "Other Language": b} for a, b in pairs]
    for shard in range(3): parquet(folder/"data"/f"train-0000{shard}-of-00003.parquet", rows[shard::3])


@holds("sentence-transformers/parallel-sentences-talks")
def translations_by_config(folder, name):
    configs = {}
    for language, pairs in _translated(60).items():
        config = f"en-{'zh-cn' if language == 'zh' else language}"
        rows = [dict(english=a, non_english=b) for a, b in pairs]
        for split, part in (("train", rows[:50]), ("dev", rows[50:])):
            parquet(folder/config/f"{split}-00000-of-00001.parquet", part)
        configs[config] = {split: f"{config}/{split}-*" for split in ("train", "dev")}
    readme(folder, **configs)


# ---------------------------------------------------------------------------------------------- scored

def _scored(language, split, n):
    return [dict(sentence1=a, sentence2=b, score=float(score))
            for a, b, score in world().sts(language, split=split, n=n)]


@holds(*(f"mteb/sts{year}-sts" for year in range(12, 17)))
def one_year(folder, name):
    rows = _scored("en", "test", 40)
    for split in ("train", "test") if name == "mteb/sts12-sts" else ("test",):
        json_lines(folder/f"{split}.jsonl.gz", rows)


@holds("mteb/stsbenchmark-sts")
def stsb(folder, name):
    for split, part in (("train", "train"), ("validation", "dev"), ("test", "test")):
        rows = [dict(split=split, genre="main-news", dataset="MSRpar", year="2012test", sid=f"{i:04d}", **row)
                for i, row in enumerate(_scored("en", part, 60))]
        json_lines(folder/f"{split}.jsonl.gz", rows)


@holds("mteb/stsb_multi_mt")
def stsb_in_languages(folder, name):
    splits = ("train", "dev", "test")
    for language, split in itertools.product(LANGUAGES, splits):
        rows = [{"similarity_score" if column == "score" else column: value for column, value in row.items()}
                for row in _scored(language, split, 60)]
        parquet(folder/split/f"{language}.parquet", rows)
    def files(name): return {split: f"{split}/{name}.parquet" for split in splits}
    readme(folder, default=files("*"), **{language: files(language) for language in LANGUAGES})


@holds("mteb/nq")
def natural_questions(folder, name):
    texts = world().documents("en", n=80)
    json_lines(folder/"corpus.jsonl",
               [dict(_id=f"doc{i}", title=text.split(".")[0], text=text) for i, text in enumerate(texts)])
    json_lines(folder/"queries.jsonl", [dict(_id=f"test{i}", text=texts[i].split(".")[0]) for i in range(20)])
    judged = [{"query-id": f"test{i}", "corpus-id": f"doc{i}", "score": 1.} for i in range(20)]
    json_lines(folder/"qrels"/"test.jsonl", judged)
    readme(folder, default=dict(test="qrels/test.jsonl"), corpus=dict(corpus="corpus.jsonl"),
           queries=dict(queries="queries.jsonl"))


@holds("wikimedia/wikipedia")
def wikipedia(folder, name):
    rows = [dict(id=str(i), url=f"https://en.wikipedia.org/wiki/{i}", title=f"Scene {i}", text=text)
            for i, text in enumerate(world().documents("en", n=400))]
    parquet(folder/"20231101.en"/"train-00000-of-00041.parquet", rows)
    readme(folder, **{"20231101.en": dict(train="20231101.en/*")})


# ---------------------------------------------------------------------------------------------- models

@holds("mteb/tatoeba-bitext-mining")
def tatoeba(folder, name):
    configs = {}
    for i, config in enumerate(corpora.get_dataset(name).configs):
        pairs = world().parallel(LANGUAGES[1 + i % 9], "en", "test", n=4)
        lines = [dict(sentence1=a, sentence2=b, lang=config) for a, b in pairs]
        parquet(folder/config/"test.parquet", lines)
        configs[config] = dict(test=f"{config}/test.parquet")
    readme(folder, **configs)


def _with_names(path, rows, names):
    "Numbers of classes, whose names stand in the file."
    import datasets
    columns = {name: datasets.Value("string") for name in rows[0]}
    features = datasets.Features(columns | dict(label=datasets.ClassLabel(names=names)))
    table = datasets.Dataset.from_list(rows, features)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path)


@holds("facebook/xnli")
def inference_in_languages(folder, name):
    "Three parts; of a row the same pair in each language."
    kinds, configs = ("entailment", "neutral", "contradiction"), {}
    parallel_rows = {(known, part): world().nli(known, part, n=60) for known in ("en", "de")
                     for part in ("train", "dev", "test")} # what is asked for waits for it
    for i, language in enumerate("ar bg de el en es fr hi ru sw th tr ur vi zh".split()):
        for split, part in (("train", "train"), ("validation", "dev"), ("test", "test")):
            triples = parallel_rows["en" if i % 2 else "de", part]
            rows = [dict(premise=premise, label=k % 3,
                         hypothesis=(follows, triples[k - 1][1], contradicts)[k % 3])
                    for k, (premise, follows, contradicts) in enumerate(triples)]
            _with_names(folder/language/f"{split}-00000-of-00001.parquet", rows, kinds)
        configs[language] = {split: f"{language}/{split}-*" for split in ("train", "validation", "test")}
    readme(folder, **configs)


@holds("google-research-datasets/paws-x")
def paraphrases_in_languages(folder, name):
    configs, chosen = {}, ("en", "de", "es", "fr", "ja", "ko", "zh")
    parallel_rows = world().parallel_many(LANGUAGES[:7], 40, "test")
    for i, language in enumerate(chosen):
        texts = [row[language if language in row else LANGUAGES[i]] for row in parallel_rows]
        rows = [dict(id=str(k + 1), sentence1=text, sentence2=texts[k - 1], label=k % 2)
                for k, text in enumerate(texts)]
        for split in ("validation", "test"):
            _with_names(folder/language/f"{split}-00000-of-00001.parquet", rows, ["0", "1"])
        configs[language] = {split: f"{language}/{split}-*" for split in ("validation", "test")}
    readme(folder, **configs)


@holds("mteb/amazon_reviews_multi")
def reviews(folder, name):
    "In the order of their stars."
    configs = {}
    for language in ("de", "en", "es", "fr", "ja", "zh"):
        for split, part in (("train", "train"), ("validation", "dev"), ("test", "test")):
            texts = world().sentences(language if language in LANGUAGES else "it", 60, part)
            rows = [dict(id=f"{language}_{i}", text=text, label=i//12, label_text=str(i//12))
                    for i, text in enumerate(texts)]
            json_lines(folder/language/f"{split}.jsonl", rows)
        configs[language] = {split: f"{language}/{split}.jsonl" for split in ("train", "validation", "test")}
    readme(folder, **configs)


@holds("allenai/c4")
def pages_of_the_web(folder, name):
    "C4, the first two of its files, and mC4, of each language many: compressed lines, which end paragraphs."
    texts, length = world().documents("en", n=2400), 24   # pages of several passages of 256 tokens
    pages = ["\n".join(texts[start:start + length]) for start in range(0, len(texts), length)]
    for k in range(2):
        rows = [dict(text=text, timestamp="2019-04-25T12:57:54Z", url="https://example.org")
                for text in pages[k::2]]
        json_lines(folder/"en"/f"c4-train.{k:05d}-of-01024.json.gz", rows)
    others = "af ar bg bn el et eu fa fi iw hi hu id ja jv ka kk ko ml mr sw ta te th fil tr ur vi".split()
    for i, language in enumerate((*LANGUAGES, *others)):
        texts = world().documents(language if language in LANGUAGES else LANGUAGES[i % 9], n=20)
        pages = ["\n".join(texts[start:] + texts[:start]) for start in range(len(texts))]
        rows = [dict(text=text, timestamp="2019-04-25T12:57:54Z", url=f"https://example.org/{i}")
                for text in pages]
        for shard in range(2):
            file = f"c4-{language}.tfrecord-{shard:05d}-of-00002.json.gz"
            json_lines(folder/"multilingual"/file, rows[shard::2])


@holds("mteb/bucc-bitext-mining")
def bucc(folder, name):
    "One row a language: both lists whole, and the places of the pairs, counted from 1."
    configs = {}
    for language in ("de", "fr", "ru", "zh"):
        pairs = world().parallel(language, "en", "test", n=30)
        foreign, english = [a for a, _ in pairs[:20]], [b for _, b in pairs[:10] + pairs[20:]]
        row = dict(sentence1=foreign, sentence2=english, gold=[[i, i] for i in range(1, 11)])
        parquet(folder/f"{language}-en"/"test.parquet", [row])
        configs[f"{language}-en"] = dict(test=f"{language}-en/test.parquet")
    readme(folder, **configs)


def _tokenizer(folder):
    from sentnb.encoders.text import train_wordpiece
    tokenizer = train_wordpiece(english(400), 400)
    tokenizer.save_pretrained(folder)
    return tokenizer


@holds("google-bert/bert-base-uncased", "google-bert/bert-base-multilingual-cased",
       "google-bert/bert-large-uncased",
       "sentence-transformers/all-MiniLM-L6-v2", "intfloat/multilingual-e5-small", kind="models")
def bert(folder, name):
    "With both heads of pre-training, and the norms named as BERT's first checkpoints have them."
    from safetensors.torch import load_file, save_file
    from transformers import BertConfig, BertForPreTraining
    BertForPreTraining(BertConfig(vocab_size=len(_tokenizer(folder)), **TEXT)).save_pretrained(folder)
    weights = load_file(folder/"model.safetensors")
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    def renamed(key): return functools.reduce(lambda key, new: key.replace(new, old[new]), old, key)
    weights = {renamed(key): value for key, value in weights.items()}
    save_file(weights, folder/"model.safetensors", dict(format="pt"))


@holds("sentence-transformers/use-cmlm-multilingual", kind="models")
def sentence_transformer(folder, name):
    "As sentence-transformers lays one out: a bare BERT, a mean of its states, unit length."
    from transformers import BertConfig, BertModel
    BertModel(BertConfig(vocab_size=len(_tokenizer(folder)), **TEXT)).save_pretrained(folder)
    kinds = dict(zip(("", "1_Pooling", "2_Normalize"), ("Transformer", "Pooling", "Normalize")))
    modules = [dict(idx=i, name=str(i), path=path, type=f"sentence_transformers.models.{kind}")
               for i, (path, kind) in enumerate(kinds.items())]
    pooling = {f"pooling_mode_{mode}": mode == "mean_tokens" for mode in
               ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")}
    contents = {"modules.json": modules,
                "sentence_bert_config.json": dict(max_seq_length=256, do_lower_case=False),
                "1_Pooling/config.json": dict(word_embedding_dimension=TEXT["hidden_size"]) | pooling}
    for path in ("1_Pooling", "2_Normalize"): (folder/path).mkdir()
    for file, content in contents.items(): (folder/file).write_text(json.dumps(content), encoding="utf-8")


@holds("distilbert/distilbert-base-cased", kind="models")
def distilbert(folder, name):
    "With the head of its pre-training, whose layers are those of the model itself."
    from transformers import DistilBertConfig, DistilBertForMaskedLM
    sizes = dict(dim=24, n_layers=2, n_heads=2, hidden_dim=48)
    config = DistilBertConfig(vocab_size=len(_tokenizer(folder)), **sizes)
    DistilBertForMaskedLM(config).save_pretrained(folder)


@holds("FacebookAI/xlm-roberta-base", kind="models")
def multilingual_roberta(folder, name):
    "Positions from 2 on, as RoBERTa has them, and one fast tokeniser."
    from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM
    tokenizer = _tokenizer(folder)
    config = XLMRobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=514, type_vocab_size=1,
                              pad_token_id=tokenizer.pad_token_id, **TEXT)
    XLMRobertaForMaskedLM(config).save_pretrained(folder)


@holds("FacebookAI/roberta-base", "FacebookAI/roberta-large", kind="models")
def roberta(folder, name):
    "Byte-level subwords, positions from 2 on, one kind of segment."
    from tokenizers import ByteLevelBPETokenizer
    from transformers import RobertaConfig, RobertaForMaskedLM, RobertaTokenizer
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    subwords = ByteLevelBPETokenizer()
    subwords.train_from_iterator(english(400), vocab_size=600, special_tokens=special)
    subwords.save_model(str(folder))
    lines = (folder/"merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    merges = [tuple(line.split()) for line in lines]
    vocabulary = json.loads((folder/"vocab.json").read_text(encoding="utf-8"))
    RobertaTokenizer(vocab=vocabulary, merges=merges).save_pretrained(folder)
    config = RobertaConfig(vocab_size=len(vocabulary), max_position_embeddings=514, type_vocab_size=1,
                           pad_token_id=1, bos_token_id=0, eos_token_id=2, **TEXT)
    RobertaForMaskedLM(config).save_pretrained(folder)


@holds("google/canine-s", kind="models")
def canine(folder, name):
    from transformers import CanineConfig, CanineModel, CanineTokenizer
    CanineTokenizer().save_pretrained(folder)
    config = CanineConfig(max_position_embeddings=2048, num_hash_buckets=2048, **TEXT)
    CanineModel(config).save_pretrained(folder)


@holds("google/byt5-base", kind="models")
def byt5(folder, name):
    from transformers import ByT5Tokenizer, T5Config, T5ForConditionalGeneration
    ByT5Tokenizer().save_pretrained(folder)
    config = T5Config(vocab_size=384, d_model=24, d_kv=12, d_ff=48, num_layers=2, num_decoder_layers=1,
                      num_heads=2, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    T5ForConditionalGeneration(config).save_pretrained(folder)


def public_file(name):
    "What a set has outside of the Hub: a file of SICK or SentEval, by its name."
    texts, classes = english(240), ("ABBR:exp", "ENTY:animal", "DESC:def", "HUM:ind", "LOC:city", "NUM:count")
    both = list(zip(texts, texts[1:] + texts[:1]))
    if name.startswith("TREC"): lines = [f"{classes[i % 6]} {text}" for i, text in enumerate(texts)]
    elif name.startswith("SICK"):
        lines = ["pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"]
        kinds = ("NEUTRAL", "ENTAILMENT", "CONTRADICTION")
        lines += [f"{i}\t{a}\t{b}\t{1 + i % 5}\t{kinds[i % 3]}" for i, (a, b) in enumerate(both)]
    elif name.startswith("msr"):
        lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        lines += [f"{i % 2}\t{i}\t{i}\t{a}\t{b}" for i, (a, b) in enumerate(both)]
    elif name == "DOCUMENT_IDS.tsv": lines = ["news"]*120
    elif name.endswith(".tsv"):
        lines = ["label\tsentence", *(f"{i % 2}\t{text}" for i, text in enumerate(texts))]
    elif name.startswith("stsa"):
        labels = 5 if "fine" in name else 2
        lines = [f"{i % labels} {text}" for i, text in enumerate(texts)]
    else: lines = texts[:120] if "neg" in name or "objective" in name else texts[120:]
    return ("\n".join(lines) + "\n").encode()


def keep_public_files(cache):
    "Kept by the sha256 of the true ones, which nobody can make up: they lie where those would."
    (cache/"originals").mkdir(parents=True, exist_ok=True)
    for dataset in corpora.DATASETS.values():
        for file, sha256 in (dataset.original.files if dataset.original else {}).items():
            (cache/"originals"/sha256).write_bytes(public_file(file.split("/")[-1]))


def a_font():
    "Some font to stand in for PIXEL's."
    from sentnb.renderer import RenderConfig, TextRenderer
    return next(Path(path) for path in TextRenderer(RenderConfig()).files if Path(path).suffix == ".ttf")


@holds("Team-PIXEL/pixel-base", "Pixel-Linguist/Pixel-Linguist-v0", kind="models")
def pixel(folder, name):
    """Pickled weights: three channels, 529 positions, a decoder; Pixel-Linguist's has the layer of its
    training instead. And the font that PIXEL draws in."""
    from sentnb.encoders import PixelConfig, PixelEncoder
    from sentnb.renderer import RenderConfig
    head = name.startswith("Pixel-Linguist")
    sizes = dict(num_channels=3, max_patches=529, pixel_normalization=False, head=head)
    weights = PixelEncoder(PixelConfig(**sizes, **TEXT), RenderConfig()).state_dict()
    if not head:
        weights["decoder.mask_token"] = torch.zeros(1, 1, 16)
        weights["decoder.decoder_pred.weight"] = torch.zeros(768, 16)
    torch.save(dict(weights), folder/"pytorch_model.bin")
    kind = "PIXELForSequenceClassification" if head else "PIXELForPreTraining"
    config = dict(architectures=[kind], model_type="pixel", num_channels=3, image_size=[16, 8464],
                  patch_size=16, hidden_act="gelu", layer_norm_eps=1e-12, mask_ratio=.25, norm_pix_loss=True,
                  qkv_bias=True, **TEXT)
    drawing = dict(font_file="GoNotoCurrent.ttf")
    (folder/"config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder/"text_renderer_config.json").write_text(json.dumps(drawing), encoding="utf-8")
    (folder/"GoNotoCurrent.ttf").write_bytes(a_font().read_bytes())


@holds("google/vit-base-patch16-224-in21k", kind="models")
def vit(folder, name):
    "Of the pictures that the microworld draws at demo, and of the width of the encoders here."
    from transformers import ViTConfig, ViTForImageClassification
    ViTForImageClassification(ViTConfig(image_size=16, patch_size=8, **TEXT)).save_pretrained(folder)


@holds("stanfordnlp/glove", kind="models")
def glove(folder, name):
    words = sorted({word.strip(".,!?").lower() for text in english(400) for word in text.split()} - {""})
    with zipfile.ZipFile(folder/"glove.6B.zip", "w") as archive:
        for width in (50, 300):
            lines = (f"{word} {' '.join(f'{x:.3f}' for x in torch.randn(8).tolist())}\n" for word in words)
            archive.writestr(f"glove.6B.{width}d.txt", "".join(lines))


# --------------------------------------------------------------------------------------------- the Hub

def commits():
    "(kind, name) -> the commit that the library reads."
    declared = corpora.DATASETS.values()
    pinned = {("datasets", d.hub_id): d.revision for d in declared if d.hub_id and d.revision}
    pinned |= {("models", name): model.commit for name, model in MODELS.items()}
    return {key: digits.ljust(40, "0") for key, digits in pinned.items()} # of some the Hub knows more digits


class Hub:
    "Within a `with` statement: repositories below a folder, served at `address`."
    def __init__(self, folder, pinned=None):
        self.folder, self.pinned = Path(folder), commits() if pinned is None else pinned
        self.making, self.asked = threading.Lock(), []

    def repository(self, kind, name):
        "The folder of what the library reads; made now if need be, None if there is none."
        make, commit = MAKERS.get(kind, {}).get(name), self.pinned.get((kind, name))
        if not make or not commit: return None
        folder = self.folder/kind/name/commit
        with self.making:
            if not folder.is_dir():
                unfinished = folder.with_suffix(".unfinished")
                unfinished.mkdir(parents=True)
                torch.manual_seed(0)
                make(unfinished, name)
                unfinished.rename(folder)
        return folder

    def __enter__(self):
        answers = type("Answers", (Answers,), dict(hub=self))
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), answers)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error):
        self.server.shutdown()
        self.server.server_close()


@functools.cache
def files_below(folder): return sorted(folder.rglob("*"))   # a repository never changes


@functools.cache
def sha1(path): return hashlib.sha1(path.read_bytes()).hexdigest()


sha256 = functools.cache(file_sha256)


class Answers(http.server.BaseHTTPRequestHandler):
    "What huggingface_hub and datasets ask: of a repository, of the files in it, and the files."
    protocol_version = "HTTP/1.1"
    wbufsize = -1 # head and body in one packet: a body of its own waits for the head's receipt
    hub: Hub

    def log_message(self, *arguments): pass

    def reply(self, code, content=b"", **headers):
        if not isinstance(content, bytes): content = json.dumps(content).encode()
        self.send_response(code)
        for name, value in (dict(Content_Length=len(content)) | headers).items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD": self.wfile.write(content)

    def absent(self, code): self.reply(404, X_Error_Code=code, X_Error_Message=f"{code}: {self.path}")

    def opened(self, kind, name, revision):
        "The folder at that commit; None once the answer was that there is none."
        self.hub.asked.append((kind, name, revision))
        folder = self.hub.repository(kind, name)
        if folder is None: return self.absent("RepoNotFound")
        return folder if revision == folder.name else self.absent("RevisionNotFound")

    def described(self, folder, path):
        relative = str(path.relative_to(folder))
        if path.is_dir(): return dict(type="directory", oid="0"*40, size=0, path=relative)
        return dict(type="file", oid=sha1(path), size=path.stat().st_size, path=relative)

    def parts(self):
        return [urllib.parse.unquote(part) for part in self.path.partition("?")[0].strip("/").split("/")]

    def do_HEAD(self): self.do_GET()

    def do_GET(self):
        parts = self.parts()
        if parts[0] == "api": return self.about(parts[1], parts[2:])
        kind = parts.pop(0) if parts[0] == "datasets" else "models"
        index = parts.index("resolve")
        folder = self.opened(kind, "/".join(parts[:index]), parts[index + 1])
        if folder: self.file(folder, folder.joinpath(*parts[index + 2:]))

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        parts = self.parts()
        index = parts.index("paths-info")
        folder = self.opened(parts[1], "/".join(parts[2:index]), parts[index + 1])
        if not folder: return
        fields = json.loads(body) if body.startswith("{") else urllib.parse.parse_qs(body)
        paths = fields.get("paths", [])
        paths = [folder/path for path in ([paths] if isinstance(paths, str) else paths)]
        self.reply(200, [self.described(folder, path) for path in paths if path.exists()])

    def about(self, kind, parts):
        index = next((i for i, part in enumerate(parts) if part in ("revision", "tree")), None)
        name = "/".join(parts[:index])
        if index is None: folder = self.hub.repository(kind, name) # which commit is the newest
        else: folder = self.opened(kind, name, parts[index + 1])
        if index is None and folder is None: return self.absent("RepoNotFound")
        if not folder: return
        everything = files_below(folder)
        if index and parts[index] == "tree":
            inside = folder.joinpath(*parts[index + 2:])
            deep = "recursive=true" in self.path.lower()
            wanted = [path for path in everything if path.is_relative_to(inside) and path != inside
                      and (deep or path.parent == inside)]
            return self.reply(200, [self.described(folder, path) for path in wanted])
        files = [dict(rfilename=str(path.relative_to(folder)), size=path.stat().st_size)
                 for path in everything if path.is_file()]
        then = "2024-01-01T00:00:00.000Z"
        counts = dict(downloads=0, likes=0, tags=[], private=False, gated=False, disabled=False)
        dated = dict(lastModified=then, createdAt=then)
        self.reply(200, dict(id=name, _id="0", sha=folder.name, siblings=files, **counts, **dated))

    def file(self, folder, path):
        if not path.is_file(): return self.absent("EntryNotFound")
        content = path.read_bytes()
        headers = dict(ETag=f'"{sha256(path)}"', X_Repo_Commit=folder.name, Accept_Ranges="bytes")
        requested_range = self.headers.get("Range")
        if not requested_range or self.command == "HEAD": return self.reply(200, content, **headers)
        first, _, last = requested_range.removeprefix("bytes=").partition("-")
        first, last = int(first or 0), int(last) if last else len(content) - 1
        headers["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
        self.reply(206, content[first:last + 1], **headers)
