"""Small things that several ledger tests need."""

import json
from fractions import Fraction

from trueup.ledger.ledger import Ledger
from trueup.noise.cost import Cost


def epsilon(amount):
    """One cost in pure epsilon."""
    return [Cost("epsilon", Fraction(amount))]


def rho(amount):
    """One cost in zCDP."""
    return [Cost("rho", Fraction(amount))]


def ledger_at(url, cap="1", **more):
    """Make a ledger with one dataset."""
    ledger = Ledger.create(url)
    ledger.init("survey", {"dp": {"epsilon": cap}, **more})
    return ledger


def stage(folder, reservation, content="0"):
    """Write a staged bundle that carries its reservation."""
    public = folder / "public"
    public.mkdir(parents=True)
    manifest = {"ledger": dict(reservation.stamp), "content": content}
    (public / "manifest.json").write_text(json.dumps(manifest))
    return folder


def release(ledger, folder, name="out", amount="1/10", key=None):
    """Go through a whole release."""
    reservation = ledger.reserve("survey", "ana", "dp", epsilon(amount), key)
    return reservation.commit(stage(folder / f".{name}.staging", reservation), folder / name)
