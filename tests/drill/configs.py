"""A setting of a checkpoint, or the whole file, becomes null, a list, absurdly large, or of another type."""
import json
import shutil
import time

from .damage import content_of, originals

SHORT = 24
VALUES = [None, [], [None], {}, "x", "", True, -1, 0, 2, 1e9, 10**6, 10**12, 1e400, float("nan")]


def attempt(rng, folder) -> None:
    kind = rng.choice(["pixels", "text", "static", "lens"])
    copy = folder/kind
    shutil.copytree(originals()/kind, copy)
    files = dict(text=["config.json", "sentnb.json", "tokenizer.json", "tokenizer_config.json"],
                 static=["config.json", "words.json"])
    file = copy/rng.choice(files.get(kind, ["config.json"]))
    content = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(content, list) or rng.random() < 0.2:
        content = rng.choice(VALUES)
    else:
        inner = content["render"] if "render" in content and rng.random() < 0.5 else content
        key = rng.choice(sorted(inner))
        inner[key] = rng.choice(VALUES)
    file.write_text(json.dumps(content), encoding="utf-8")
    begin = time.process_time() # a busy machine is no failure
    try:
        content_of(kind, copy)
    except (ValueError, OSError, ImportError) as error: # ImportError: a font is not installed
        is_font = "is in none of the font files" in str(error) # another machine may have it
        assert is_font or str(copy) in str(error), f"{file.name}: {json.dumps(content)[:2000]}: {error!r}"
    assert time.process_time() - begin < 20, f"{file.name}: {json.dumps(content)[:2000]}"
