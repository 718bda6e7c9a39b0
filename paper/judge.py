"""The claims of `claims.toml`, judged by the records."""

from __future__ import annotations

from collections.abc import Iterator

from paper.collect import Records
from paper.plan import FIGURES, entries
from paper.rules import CLAIMS, RULES, Claim, Count

Verdict = tuple[str, str, str, str]
"""A row of the table of claims: place, what the paper says, what was measured, the verdict."""


def word(count: Count, need: str = "all") -> str:
    """The verdict, if it is the same whatever the open cases bring; else "unfinished"."""

    def verdict(good: int) -> str:
        if not good:
            return "not reproduced"
        return "reproduced" if need == "any" or good == count.total else "partly reproduced"

    least, most = verdict(count.good), verdict(count.good + count.open)
    return least if least == most else "unfinished"


def judge(claim: Claim, records: Records) -> Verdict:
    """One claim."""
    places = [place.partition("/")[::2] for place in claim["runs"]]
    arms = [records.get(f, {}).get(name) if name else records.get(f) for f, name in places]
    if not all(arms):
        return claim["place"], claim["says"], "", "not run"
    count, need = RULES[claim["rule"]](claim, arms), claim.get("need", "all")
    found = word(count, need)
    if need == "all" and found.endswith("reproduced") and count.good and _shorter(*places[0]):
        found += " (fewer steps than the paper)"
    return claim["place"], claim["says"], count.here, found


def _shorter(figure: str, name: str) -> bool:
    """Whether the plan trains these runs for less than the paper says it does."""
    planned = [e for e in entries(figure) if e.name == name] if figure in FIGURES else []
    return any(e.change.get("train.length", 1e9) < (e.paper_length or 0) for e in planned)


def verdicts(records: Records, headlines: bool = False) -> Iterator[Verdict]:
    """Every claim, or those that the README shows."""
    chosen = (claim for claim in CLAIMS["claim"] if claim.get("headline") or not headlines)
    return (judge(claim, records) for claim in chosen)
