"""docs/experiments.md has each claim in its words, and the paper's numbers."""

import csv
import re

import pytest

from doc_names import ROOT
from experiments.paper.tables import paper_rows

PAGE = (ROOT / "docs" / "experiments.md").read_text("utf-8")


def test_every_claim_is_there_in_its_words():
    with (ROOT / "experiments" / "paper" / "claims.csv").open(newline="") as file:
        texts = [row["text"] for row in csv.DictReader(file)]
    section = PAGE.partition("## Verdicts")[2].partition("\n## ")[0]
    found = re.findall(r"^\| ([^|]+?) \|", section, re.M)
    assert found[1:] == texts


@pytest.mark.parametrize(("model", "heading"), [("netflix", "Netflix"), ("yahoo", "Yahoo")])
def test_the_papers_table_is_there(model, heading):
    table = re.search(rf"^\| {heading}.*?\n\n", PAGE, re.M | re.S)[0]
    head = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")][1:]
    for row in paper_rows(model):
        line = re.search(rf"^\| D = {row['D']}, the paper \|(.*)\|$", table, re.M)[1]
        cell = [part.strip().strip("*") for part in line.split("|")][head.index(row["algorithm"])]
        gain = row["relative_improvement"]
        said = f"{row['rmse']:.4f}" + (f" ({100 * gain:+.2f}%)" if gain else "")
        assert cell.replace("**", "") == re.sub(r"(?<![\d])0\.", ".", said)
