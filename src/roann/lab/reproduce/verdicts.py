"""The paper's claims, one by one, judged by the records; no verdict is written by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial as having
from typing import Any, NamedTuple

from roann.lab.paper_figures import ALL_PASS, POSSIBLE
from roann.lab.reproduce import judges
from roann.lab.reproduce.collect import ELSEWHERE
from roann.lab.reproduce.judges import PSMNIST, RECALLED, SUMMED, Arm, Found

Book = Mapping[str, Mapping[str, Arm]]
"""Figure → arm → readings."""


class Verdict(NamedTuple):
    """A claim of the paper beside what was measured.

    Attributes:
        place: where it stands.
        claim: what the paper says.
        ours: what was measured.
        word: one of those that `WORDS` explains.
    """

    place: str
    claim: str
    ours: str
    word: str


WORDS = (
    "*Reproduced* means: in every seed and every case that the claim names; *in part*: in some; "
    "*not reproduced*: in none. Where the paper speaks of its best trial (Table 1) or of what is "
    "possible, one seed is enough; where arms are compared, it is by their medians, and in Fig. 6 "
    "in pairs of one seed. *As far as run* means for fewer steps than the paper's. A claim is "
    "*unfinished* while runs that could still decide it are."
)


class _Claim(NamedTuple):
    """A claim, the arms it is judged by, and how.

    Attributes:
        partial: it can be judged while arms are missing or unfinished; the judge sees to it.
    """

    place: str
    text: str
    figure: str
    arms: tuple[str, ...]
    judge: Callable[..., Found]
    partial: bool = False


def verdicts(book: Book, study: Sequence[Mapping[str, Any]]) -> list[Verdict]:
    """Every claim, judged by what there is."""
    made = []
    for claim in [*_fig1(), *_fig2(), *_fig3(), *_table1(), *_fig6()]:
        arms = [_arm(book, claim.figure, name) for name in claim.arms]
        ours, word = "", "not run"
        if any(arms) if claim.partial else all(arms):
            ours, word = claim.judge(*arms)
            if not claim.partial and judges.going_on(*arms):
                word = judges.UNFINISHED
        made.append(Verdict(claim.place, claim.text, ours, word))
    return [*made, _bounds(study)]


def _arm(book: Book, figure: str, name: str) -> Arm:
    """An arm of a figure; one `place/arm` is looked up there."""
    place, _, arm = name.rpartition("/")
    return book.get(place or figure, {}).get(arm, [])


def _fig1() -> list[_Claim]:
    moon, deep = "double-moon-roa-50", "double-moon-roa-50000"
    optimisers = tuple(f"{deep}-{name}" for name in ("sgd", "nag", "adam"))
    cheap = tuple(f"{stem}-strategy-{k}" for stem in (moon, f"{deep}-adam") for k in (1, 2))
    claims: list[tuple[str, tuple[str, ...], Callable[..., Found]]] = [
        ("a shallow network solves the double moon", ("double-moon-shallow",), judges.solved),
        (
            "50 layers of 2 neurons: a plain network fails, a roaFNN solves it",
            ("double-moon-vanilla-50", moon),
            judges.moon,
        ),
        (
            "50,000 layers converge within 10 epochs with SGD, NAG and Adam",
            optimisers,
            judges.depth,
        ),
        (
            "50,000 layers converge at the same rate as 50",
            (moon, *optimisers),
            judges.same_rate,
        ),
        (
            "semi-permutations (I) and one O for all layers (II) work fine, too",
            cheap,
            judges.strategies,
        ),
    ]
    return [_Claim("Fig. 1", text, "fig1", arms, judge) for text, arms, judge in claims]


def _fig2() -> list[_Claim]:
    roa = {L: f"copying-{L}" for L in (400, 2000, 10000)}
    claims: list[tuple[str, tuple[str, ...], Callable[..., Found], bool]] = [
        (
            f"L = {L:,}: 100 % on most training steps from 2,000 to 4,000",
            (roa[L],),
            judges.copying,
            False,
        )
        for L in (400, 2000)
    ]
    claims += [
        (
            "L = 10,000: below the trivial cross-entropy within 500 steps",
            (roa[10000],),
            judges.long_copying,
            True,
        ),
        (
            "L = 400 and 2,000: longer runs sometimes become unstable",
            (roa[400], roa[2000], f"{ELSEWHERE}/{roa[400]}"),
            judges.unstable,
            True,
        ),
        (
            "L = 400: a roaRNN is far better than an LSTM, and that slightly better than a vanilla "
            "RNN",
            (roa[400], "copying-400-lstm", "copying-400-rnn"),
            judges.order,
            False,
        ),
        (
            f"L = 400: an LSTM struggles (judged by: it does not reach {100 * RECALLED:.0f} % "
            "recall)",
            ("copying-400-lstm",),
            having(judges.fails, "recall_accuracy", RECALLED),
            False,
        ),
        (
            "L = 2,000: vanilla RNNs end in NaN in all trials",
            ("copying-2000-rnn",),
            judges.ends_in_nan,
            False,
        ),
    ]
    return [
        _Claim("Fig. 2", f"copying, {text}", "fig2", arms, judge, partial)
        for text, arms, judge, partial in claims
    ]


def _fig3() -> list[_Claim]:
    missed = having(judges.fails, "mse", SUMMED)
    here = f"judged by: it does not reach an MSE of {SUMMED}"
    solves = having(judges.succeeds, "mse", SUMMED)
    read = f"as we read it: only longer ones are hard for it; judged by: an MSE of {SUMMED}"
    claims: list[tuple[str, tuple[str, ...], Callable[..., Found]]] = [
        (f"T = {T:,}: converges within 5,000 steps", (f"adding-{T}",), judges.adding)
        for T in (200, 1000, 5000)
    ]
    claims += [
        (f"T = 1,000: a vanilla RNN fails ({here})", ("adding-1000-rnn",), missed),
        (f"T = 5,000: an LSTM struggles ({here})", ("adding-5000-lstm",), missed),
        (f"T = 200: a vanilla RNN solves it ({read})", ("adding-200-rnn",), solves),
        (
            f"T = 200 and 1,000: an LSTM solves it ({read})",
            ("adding-200-lstm", "adding-1000-lstm"),
            solves,
        ),
    ]
    return [
        _Claim("Fig. 3", f"adding, {text}", "fig3", arms, judge) for text, arms, judge in claims
    ]


def _table1() -> list[_Claim]:
    widths = tuple(f"psmnist-{N}" for N in PSMNIST)
    made = []
    for limits, judge, words in (
        (POSSIBLE, judges.possible, "is possible"),
        (ALL_PASS, judges.all_pass, "in all cases"),
    ):
        for epoch, accuracy in limits.items():
            text = f"psMNIST: above {100 * accuracy:.0f} % after {epoch} "
            text += f"epoch{'s' if epoch > 1 else ''} {words}"
            made.append(
                _Claim("Fig. 5", text, "table1", widths, having(judge, epoch, accuracy), True)
            )
    for N, best in PSMNIST.items():
        text = f"psMNIST, N = {N}: {100 * best:.2f} % best test accuracy in 20 epochs"
        judge = having(judges.psmnist, best)
        made.append(_Claim("Table 1", text, "table1", (f"psmnist-{N}",), judge))
    return made


def _fig6() -> list[_Claim]:
    return [
        _Claim(
            "Fig. 6",
            f"{task}: a random orthogonal O beats the identity",
            "fig6",
            (f"ablation-{task}-qr", f"ablation-{task}-identity"),
            judges.ablation,
        )
        for task in ("copying", "adding", "psmnist")
    ]


def _bounds(study: Sequence[Mapping[str, Any]]) -> Verdict:
    claim = "the singular values of the input–output Jacobian lie in the interval of the theorems"
    ours, word = judges.bounds(study)
    return Verdict("Theorems", claim, ours, word)
