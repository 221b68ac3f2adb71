"""Writes CITATION.cff from CITATION.bib (the papers) and settings.ini (the software): python docs/citation.py"""
import re
from configparser import ConfigParser
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
KINDS = dict(article="article", inproceedings="conference-paper")


def read_entries(text: str) -> list[dict[str, str]]:
    "The entries of a BibTeX file: their fields, and their kind."
    entries = []
    for kind, body in re.findall(r"^@(\w+)\{[^,]+,\n(.*?)^\}", text, re.M | re.S):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?$", body, re.M | re.S)
        plain = {name: " ".join(value.replace("{", "").replace("}", "").split()) for name, value in fields}
        entries.append(dict(plain, kind=kind))
    return entries


def list_authors(names: str) -> list[dict[str, str]]: # "Xiao, Chenghao and Huang, Zhuoxu"
    parts = (name.split(", ") for name in names.split(" and "))
    return [{"family-names": family, "given-names": given} for family, given in parts]


def make_reference(entry: dict[str, str]) -> dict:
    start, _, end = entry.get("pages", "").partition("--")
    fields = dict(type=KINDS[entry["kind"]], title=entry["title"], authors=list_authors(entry["author"]),
                  year=int(entry["year"]), journal=entry.get("journal"), doi=entry.get("doi"),
                  start=start or None, end=end or None)
    if "booktitle" in entry: fields["collection-title"] = entry["booktitle"]
    return {name: value for name, value in fields.items() if value is not None}


def citation() -> str:
    "The content of CITATION.cff."
    parser = ConfigParser(delimiters=["="])
    parser.read(ROOT/"settings.ini", encoding="utf-8")
    settings = parser["DEFAULT"]
    entries = read_entries((ROOT/"CITATION.bib").read_text(encoding="utf-8"))
    content = {
        "cff-version": "1.2.0",
        "message": "Cite the paper whose experiment you use; the references list all five.",
        "type": "software",
        "title": settings["title"],
        "abstract": settings["description"],
        "version": settings["version"],
        "license": "Apache-2.0",
        "authors": [dict(name=settings["author"])],
        "references": [make_reference(entry) for entry in entries],
    }
    head = "# Written by docs/citation.py from CITATION.bib and settings.ini\n"
    return head + yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)


if __name__ == "__main__":
    (ROOT/"CITATION.cff").write_text(citation(), encoding="utf-8")
