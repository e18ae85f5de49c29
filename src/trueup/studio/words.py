"""The words of the page, explained where they stand."""

from __future__ import annotations

WORDS = {
    "margin of error": "The number of counts by which a published count errs at most, with the stated probability.",
    "level": "A kind of place: nation, state, county. Each place of a level belongs to one place of the level above.",
    "attribute": "What counts are broken down by, such as sex or age, with all values that it may have.",
    "unit": "Who is protected: a person, a household. What is published would be almost as likely without any one of them.",
    "public list of places": "All places that exist, occupied or not. Places taken from records would reveal which are occupied.",
    "rho": "The privacy loss of zero-concentrated differential privacy, the currency of Gaussian noise. Losses add up.",
    "epsilon": "The privacy loss of pure differential privacy: odds of a suspicion change by a factor of e^epsilon at most.",
    "delta": "The probability with which the bound on the odds may fail.",
    "budget": "The privacy loss that may be spent. The more accurate the tables, the more they cost.",
    "ledger": "A file that records what every release of a dataset spends, and grants nothing beyond the caps.",
    "table": "The counts of one level by some attributes, such as county by sex.",
    "reconciliation": "Turning noisy counts into whole counts that are not negative and add up, from the noisy counts alone.",
    "made-up population": "Counts drawn for these places with the skew of real ones. No confidential count is read.",
    "bias": "How far published counts are off on average, in counts.",
    "coverage": "How often an interval holds the true count.",
    "posterior": "The distribution of the true counts given what was published.",
    "bundle": "The folder that a release writes: public/, which may be published, and internal/, which may not.",
}
