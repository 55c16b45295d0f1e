"""What a judge of an answer's claims says.

What may live here: the data of the Grounder port.
"""

from __future__ import annotations

from dataclasses import dataclass

ROUNDING = 1e-6
"""By how much a mean of numbers up to 1 may be above it."""


@dataclass(frozen=True, slots=True)
class ClaimEvaluation:
    """One claim of an answer, and how far the evidence supports it: 0 to 1."""

    claim: str
    support: float
    reason: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.claim, str):
            raise TypeError(f"a claim is text, not {self.claim!r:.80}")
        support = self.support
        if not isinstance(support, int | float) or not -ROUNDING <= support <= 1 + ROUNDING:
            raise ValueError(f"the support of a claim is a number from 0 to 1, not {support}")
        object.__setattr__(self, "support", min(1.0, max(0.0, float(support))))


@dataclass(frozen=True, slots=True)
class GroundingResult:
    """The claims of an answer, judged."""

    claims: tuple[ClaimEvaluation, ...] = ()

    def __post_init__(self) -> None:
        claims = tuple(self.claims)
        if not all(isinstance(claim, ClaimEvaluation) for claim in claims):
            raise TypeError("the claims of a GroundingResult are ClaimEvaluation objects")
        object.__setattr__(self, "claims", claims)

    @property
    def score(self) -> float:
        """The mean support of the claims; 1 when there are none."""
        return sum(one.support for one in self.claims) / len(self.claims) if self.claims else 1.0

    @property
    def ungrounded_claims(self) -> tuple[str, ...]:
        """The claims that the evidence supports by less than a half, the weakest first."""
        weak = sorted(
            (one for one in self.claims if one.support < 0.5), key=lambda one: one.support
        )
        return tuple(one.claim for one in weak)
