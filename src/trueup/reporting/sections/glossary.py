"""Section that explains the words of the page."""

from __future__ import annotations

from trueup.model.guarantee import Guarantee
from trueup.reporting.drawing.blocks import Facts, Section

_WORDS = (
    (
        "Differential privacy",
        "A property of the way in which counts are published: whatever anybody concludes from them would be almost "
        "as likely had one unit's data been different. How much 'almost' allows is the privacy loss.",
    ),
    (
        "Privacy loss",
        "The bound on how much one unit's data can change the probability of any published result, stated as "
        "epsilon or rho. Losses of several releases add up.",
    ),
    ("Noisy count", "The true count plus a random number from a known law. It may be negative."),
    (
        "Noise margin",
        "The distance from the true count within which the noisy count lies with the stated probability.",
    ),
    (
        "Reconciliation",
        "Turning noisy counts into whole counts that are not negative and add up, without looking at the true data.",
    ),
    (
        "Weighted least squares",
        "The combination of all noisy counts that is closest to them, where each counts the more the less noise it has.",
    ),
    ("Standard error", "The typical size of the error: the root of its mean square."),
    (
        "Post-processing",
        "Any computation on noisy counts. It cannot weaken the protection.",
    ),
    ("Digest", "A fingerprint of a file: two files with the same digest are the same."),
)
_INVARIANT = (
    "Exactly as enumerated",
    "Published without noise (an invariant). Such counts are not protected.",
)


def glossary(guarantee: Guarantee) -> Section:
    """Explain the words of the page."""
    words = (*_WORDS, _INVARIANT) if guarantee.kind == "invariant" else _WORDS
    return Section("words", "Words used on this page", (Facts(words),))
