"""Model cards: metadata that the Hub reads; save_pretrained writes them, push_to_hub uploads them."""
import huggingface_hub
import pytest

from sentnb.encoders import ModelCard, PixelConfig, PixelEncoder, TextEncoder

CARD = ModelCard("mine", "Encodes questions.", base="sentnb-small", data=["org/set", "words of our own"],
                 languages=["en", "de"], scores={"STS-B": 0.706, "SICK-R": 0.5}, licence="apache-2.0",
                 citation="@misc{mine}")


def test_the_hub_reads_what_was_given(tmp_path):
    data = huggingface_hub.ModelCard.load(CARD.save(tmp_path)).data
    assert (data.model_name, data.base_model, data.license) == ("mine", "sentnb-small", "apache-2.0")
    assert data.datasets == ["org/set"] and data.language == ["en", "de"]
    values = {result.dataset_name: (result.metric_type, result.metric_value) for result in data.eval_results}
    assert values == {"STS-B": ("cosine_spearman", 70.6), "SICK-R": ("cosine_spearman", 50.0)}
    text = (tmp_path/"README.md").read_text(encoding="utf-8")
    assert "words of our own" in text and "| STS-B | 70.6 |" in text and "@misc{mine}" in text


def test_nothing_is_said_that_was_not_given():
    text = ModelCard("mine", "Encodes questions.").to_markdown()
    assert "random weights" in text
    for word in ("licence", "model-index", "base_model", "Citation", "STS"): assert word not in text


@pytest.mark.parametrize("encoder", [
    lambda: PixelEncoder(PixelConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2)),
    lambda: TextEncoder.from_pretrained("text-small-mlm")], ids=["pixels", "tokens"])
def test_save_pretrained_writes_it_and_keeps_it(encoder, tmp_path):
    encoder = encoder()
    folder = encoder.save_pretrained(tmp_path/"model", card=CARD)
    assert (folder/"README.md").read_text(encoding="utf-8") == CARD.to_markdown()
    encoder.save_pretrained(folder)
    assert (folder/"README.md").is_file()


def test_push_to_hub_uploads_it(monkeypatch):
    uploaded = {}
    class Api:
        def create_repo(self, repo_id, **_): ...
        def upload_folder(self, repo_id, folder_path, **_):
            uploaded.update({path.name: path.read_bytes() for path in folder_path.iterdir()})
            return "https://huggingface.co/owner/name"
    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    encoder = PixelEncoder(PixelConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2))
    encoder.push_to_hub("owner/name", card=CARD)
    assert uploaded["README.md"].decode() == CARD.to_markdown() and "model.safetensors" in uploaded
